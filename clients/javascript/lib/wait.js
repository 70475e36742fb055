// One call that waits in line: its deadline, and what ends it earlier.
const { TimedOutError } = require('./errors.js');
const { localTime } = require('./node.js');
const { checkSignal, checkTimeout } = require('./settings.js');

const LAST_CALL_MS = 40; // after the deadline, for the call that takes a grant or leaves the line

const WAIT_NAMES = ['timeout', 'signal']; // the options of a wait

const waits = new WeakMap(); // by signal: a signal has one listener, also if many calls wait with it

function abortAll({ target }) {
  waits.get(target).forEach((wait) => wait.fail(target.reason));
}

function listen(signal, wait) {
  if (!waits.get(signal)?.size) {
    waits.set(signal, new Set());
    signal.addEventListener('abort', abortAll);
  }
  waits.get(signal).add(wait);
}

function forget(signal, wait) {
  waits.get(signal).delete(wait);
  if (!waits.get(signal).size) signal.removeEventListener('abort', abortAll);
}

class Wait {
  #reject;
  #failed = new Promise((_, reject) => (this.#reject = reject));

  constructor({ timeout, signal }) {
    checkTimeout(timeout);
    checkSignal(signal);
    this.timeout = timeout;
    this.end = timeout === undefined ? Infinity : localTime() + timeout; // by `localTime()`
    this.latest = this.end + LAST_CALL_MS;
    this.signal = signal;
    this.isOver = false; // whether it was ended early
    this.#failed.catch(() => {});
  }

  /** Runs `work(wait)`. `fail` ends it, also by an abort of the signal. */
  async run(work) {
    this.signal?.throwIfAborted();
    if (this.signal) listen(this.signal, this);
    try {
      return await work(this);
    } finally {
      if (this.signal) forget(this.signal, this);
    }
  }

  /** Settles as the promise does, unless the wait ends before. */
  race(promise) {
    return Promise.race([this.#failed, promise]);
  }

  /** Ends the wait with this error. */
  fail(error) {
    this.isOver = true;
    this.#reject(error);
  }

  timedOut(name, usage, cause) {
    return new TimedOutError(name, usage, this.timeout, cause);
  }
}

module.exports = { LAST_CALL_MS, WAIT_NAMES, Wait };
