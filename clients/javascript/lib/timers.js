// Bounds for calls, and pauses.
const { clearImmediate, clearTimeout, setImmediate, setTimeout } = require('./node.js');

const MOST_TIMER_MS = 2 ** 31 - 1; // the longest time that a timer takes

/**
 * Calls `alarm` after `ms`. If the process was busy, what arrived meanwhile is read before that. A timer in the background does not
 * keep the process alive. Returns a function that ends the timer.
 */
function after(ms, alarm, isBackground = false) {
  let reading;
  const timer = setTimeout(() => (reading = setImmediate(alarm)), Math.min(Math.max(0, Math.ceil(ms)), MOST_TIMER_MS));
  if (isBackground) timer.unref();
  return () => {
    clearTimeout(timer);
    clearImmediate(reading);
  };
}

/** No answer came in time. */
class LateError extends Error {
  constructor() {
    super('no reply in time');
  }
}

/** Settles as the promise does, or rejects with a LateError after `ms`. */
function within(ms, promise, isBackground = false) {
  return new Promise((resolve, reject) => {
    const end = after(ms, () => reject(new LateError()), isBackground);
    promise.then(
      (value) => (end(), resolve(value)),
      (error) => (end(), reject(error)),
    );
  });
}

function pause(ms, isBackground = false) {
  return new Promise((resolve) => after(ms, resolve, isBackground));
}

module.exports = { after, LateError, within, pause };
