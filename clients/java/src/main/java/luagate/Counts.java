package luagate;

import java.util.concurrent.atomic.LongAdder;

/** The counters of a gate, as they are updated. */
final class Counts {
  final LongAdder granted = new LongAdder();
  final LongAdder denied = new LongAdder();
  final LongAdder lineFull = new LongAdder();
  final LongAdder waited = new LongAdder();
  final LongAdder lost = new LongAdder();
  final LongAdder renewed = new LongAdder();
  final LongAdder reconnects = new LongAdder();

  /** Counts a permit that is handed out. */
  void grant(boolean hasWaited) {
    granted.increment();
    if (hasWaited) {
      waited.increment();
    }
  }

  /** Reads a part before its whole, so that no part is greater. */
  Counters read() {
    long waitedNow = waited.sum();
    long lineFullNow = lineFull.sum();
    return new Counters(
        granted.sum(),
        denied.sum(),
        lineFullNow,
        waitedNow,
        lost.sum(),
        renewed.sum(),
        reconnects.sum());
  }
}
