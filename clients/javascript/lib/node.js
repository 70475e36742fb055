// What luagate uses of Node.js, taken when it is loaded: a test may replace the timers and the clock later. Not by `require`: in a
// bundle of ES modules there is none.
const { createHash, randomBytes, randomUUID } = process.getBuiltinModule('node:crypto');
const { readFileSync } = process.getBuiltinModule('node:fs');
const { performance } = process.getBuiltinModule('node:perf_hooks');
const { clearImmediate, clearTimeout, setImmediate, setTimeout } = process.getBuiltinModule('node:timers');
const { inspect } = process.getBuiltinModule('node:util');

/** The time of this process in ms. */
const localTime = performance.now.bind(performance);

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
