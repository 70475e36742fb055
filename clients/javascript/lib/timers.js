// Bounds for calls, and pauses.

const MOST_TIMER_MS = 2 ** 31 - 1; // the longest time that a timer takes

/**
 * Calls `alarm` after `ms`. If the process was busy, what arrived meanwhile is read before that. A timer in the background does not
 * keep the process alive. Returns a function that ends the timer.
 */
export function after(ms, alarm, isBackground = false) {
  let reading;
  const timer = setTimeout(() => (reading = setImmediate(alarm)), Math.min(Math.max(0, Math.ceil(ms)), MOST_TIMER_MS));
  if (isBackground) timer.unref();
  return () => {
    clearTimeout(timer);
    clearImmediate(reading);
  };
}

/** Settles as the promise does, or rejects with `late()` after `ms`. */
export function within(ms, promise, late, isBackground = false) {
  return new Promise((resolve, reject) => {
    const end = after(ms, () => reject(late()), isBackground);
    promise.then(
      (value) => (end(), resolve(value)),
      (error) => (end(), reject(error)),
    );
  });
}

export function pause(ms, isBackground = false) {
  return new Promise((resolve) => after(ms, resolve, isBackground));
}
