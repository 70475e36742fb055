// The errors of this package. Another error of the server reaches the caller as it is.
const { inspect } = require('./node.js');

const MOST = 2 ** 31 - 1; // the highest limit; a reader-writer lock has it, and a writer holds as many permits

/** The base of all errors of this package. */
class LuagateError extends Error {}

/** An argument is not valid. Nothing was sent. */
class InvalidError extends LuagateError {}

/** Not granted, because of how the semaphore `name` was in use at that time. */
class UsageError extends LuagateError {
  constructor(message, name, { in_use, limit, waiting, next_expiry }, options) {
    super(message, options);
    this.semaphore = name;
    this.inUse = in_use;
    this.limit = limit;
    this.waiting = waiting;
    this.nextExpiry = next_expiry === -1 ? null : next_expiry;
  }

  /** Estimates the time until a permit is free, if a permit is held for `hold` ms: at least 1 ms. */
  retryAfter(hold) {
    return Math.max(1, (hold * (this.waiting + 1)) / Math.max(1, this.limit));
  }
}

function used({ in_use, limit }) {
  if (limit < MOST) return `${in_use} of ${limit} permits are in use`;
  return in_use === MOST ? 'locked for writing' : `locked for reading by ${in_use}`;
}

/** The permits were not granted at once. */
class DeniedError extends UsageError {
  constructor(name, usage) {
    super(
      `${name}: not granted at once: ${used(usage)}, and ${usage.waiting} callers wait in line. Try again later, or wait with \`acquire\``,
      name,
      usage,
    );
  }
}

/** The line has `maxWaiting` waiters or more. */
class LineFullError extends UsageError {
  constructor(name, usage, maxWaiting) {
    const why = `${usage.waiting} callers wait in line already, and maxWaiting is ${maxWaiting}`;
    super(`${name}: ${why}. Try again later`, name, usage);
  }
}

/** The usage of a semaphore before the first reply. */
const UNKNOWN = { in_use: 0, limit: 0, waiting: 0, next_expiry: -1 };

/** The permits were not granted within the timeout, in ms. `cause`: the last error, if the server did not answer. */
class TimedOutError extends UsageError {
  constructor(name, usage, timeout, cause) {
    const full = `${used(usage)}, and ${usage.waiting} callers wait in line. Try again later`;
    const why = usage.limit ? full : 'the server did not answer. Check its address, TLS and load';
    super(`${name}: not granted within ${timeout} ms: ${why}`, name, usage, { cause });
  }
}

/** More permits than the limit in force: waiting cannot help. */
class AboveLimitError extends LuagateError {
  constructor(name, permits, limit) {
    const accepted = `1 to ${limit}. Ask for fewer, or raise the limit with \`resize\``;
    super(`${name}: ${permits} permits are more than the limit in force. Accepted: ${accepted}`);
    this.limit = limit;
  }
}

/** The semaphore is `strict`, and the limit in force is another one. */
class LimitMismatchError extends LuagateError {
  constructor(name, declared, limit) {
    const remedy = `Declare ${limit}, or change the limit with \`resize\``;
    super(`${name}: the limit in force is ${limit}, this caller declares ${declared}. ${remedy}`);
    this.limit = limit;
  }
}

/** The permit is no longer held: its lease ended, or it was released or revoked. */
class LostError extends LuagateError {}

/** Another client removed this waiter from the line. */
class RevokedError extends LuagateError {}

/** The gate was closed. */
class ClosedError extends LuagateError {
  constructor() {
    super('the gate is closed. Make a new Luagate');
  }
}

/** The server's ACL or its password refuses this client. */
class NoPermissionError extends LuagateError {}

/** The scripts never return this reply. */
class UnexpectedReplyError extends LuagateError {
  constructor(script, reply) {
    const what = 'unexpected reply; the script never returns this. Check for a proxy that changes replies';
    super(`${script}: ${what}: ${inspect(reply).slice(0, 200)}`);
  }
}

/** No connection to the server, or no reply in time. */
class UnreachableError extends LuagateError {}

const classes = {
  AboveLimitError,
  ClosedError,
  DeniedError,
  InvalidError,
  LimitMismatchError,
  LineFullError,
  LostError,
  LuagateError,
  NoPermissionError,
  RevokedError,
  TimedOutError,
  UnexpectedReplyError,
  UnreachableError,
};
// A minifier renames classes, but not these keys.
for (const [name, { prototype }] of Object.entries(classes)) {
  Object.defineProperty(prototype, 'name', { value: name, writable: true, configurable: true });
}

module.exports = { ...classes, classes, MOST, UNKNOWN };
