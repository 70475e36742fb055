// What luagate uses of Node.js, taken when it is loaded: a test may replace the timers and the clock later. Not by `require`: in a
// bundle of ES modules there is none.
const { createHash, randomBytes, randomUUID } = process.getBuiltinModule('node:crypto');
const { readFileSync } = process.getBuiltinModule('node:fs');
const { uptime } = process.getBuiltinModule('node:os');
const { performance } = process.getBuiltinModule('node:perf_hooks');
const { clearImmediate, clearTimeout, setImmediate, setTimeout } = process.getBuiltinModule('node:timers');
const { inspect } = process.getBuiltinModule('node:util');

const SHORTEST_MS = 100; // a shorter time cannot be told from small corrections of the wall clock

const awakeTime = performance.now.bind(performance);
const wallTime = Date.now;
const atFirst = 1_000 * uptime() - awakeTime();
let difference = wallTime() - awakeTime();
let suspended = 0; // ms

/** The time of this process in ms. It goes on while the machine is suspended, as a lease does at the server. */
function localTime() {
  const awake = awakeTime();
  const step = wallTime() - awake - difference;
  if (Math.abs(step) >= SHORTEST_MS) {
    // The machine was suspended, or the wall clock was set. `uptime` tells which, but is slow.
    difference += step;
    const all = 1_000 * uptime() - awake - atFirst;
    if (all - suspended >= SHORTEST_MS) suspended = all;
  }
  return awake + suspended;
}

/** Calls this with the real `setImmediate`: the package `redis` sends its commands with it. */
function withRealTimers(call) {
  const replaced = globalThis.setImmediate;
  globalThis.setImmediate = setImmediate;
  try {
    return call();
  } finally {
    globalThis.setImmediate = replaced;
  }
}

module.exports = {
  clearImmediate,
  clearTimeout,
  createHash,
  inspect,
  localTime,
  randomBytes,
  randomUUID,
  readFileSync,
  setImmediate,
  setTimeout,
  withRealTimers,
};
