// The settings of a semaphore. An invalid setting throws a RangeError.

const DEFAULT_LEASE_MS = 30_000;
const LONGEST_HEAD_START_MS = 86_400_000; // a day; the scripts accept no more
const GROUPED = /^\{[^{}]+\}:[^{}]+$/; // a name with a group, which is its hash tag
const PREFIX = /^[A-Za-z0-9._:-]{1,64}$/;

/** What a caller declares about a semaphore. All durations are in milliseconds. */
export class Settings {
  constructor(prefix, kind, name, limit, options = {}) {
    const { lease, autoRenew = false, maxWaiting = 0, atLeast = 0, headStart = 0 } = options;
    checkName(name);
    checkInteger('limit', limit, 1);
    if (lease !== undefined) checkInteger('lease', lease, 0);
    checkInteger('maxWaiting', maxWaiting, 0);
    checkInteger('atLeast', atLeast, 0);
    if (!Number.isSafeInteger(headStart) || headStart < 0 || headStart > LONGEST_HEAD_START_MS) {
      const accepted = `an integer from 0 to ${LONGEST_HEAD_START_MS}, in ms`;
      throw new RangeError(`headStart: got ${headStart}. Accepted: ${accepted}`);
    }
    const tag = name.startsWith('{') ? name : `{${name}}`;
    this.keys = ['', '.holders', '.queue'].map((part) => `${prefix}:${kind}${part}:${tag}`);
    this.key = this.keys[0]; // stands for the semaphore in errors
    this.tag = /\{(.*?)\}/.exec(tag)[1]; // the hash tag of the keys
    this.lease = lease ?? DEFAULT_LEASE_MS;
    this.isRenewed = autoRenew || lease === undefined;
    Object.assign(this, { limit, maxWaiting, atLeast, headStart });
  }
}

export function checkPrefix(prefix) {
  if (typeof prefix !== 'string' || !PREFIX.test(prefix)) {
    const accepted = "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'";
    throw new RangeError(`prefix: got ${JSON.stringify(prefix)}. Accepted: ${accepted}`);
  }
}

/** Checks that the value is an integer from `least` on. The scripts check the upper bounds. */
export function checkInteger(what, value, least) {
  if (!Number.isSafeInteger(value) || value < least) {
    throw new RangeError(`${what}: got ${value}. Accepted: an integer from ${least} on`);
  }
}

function checkName(name) {
  const bytes = typeof name === 'string' ? Buffer.byteLength(name) : 0;
  const got = `name: got ${JSON.stringify(name)}`;
  if (bytes < 1 || bytes > 200 || /[\s\p{Cc}]/u.test(name)) {
    throw new RangeError(`${got}. Accepted: 1 to 200 bytes without white space and control characters`);
  }
  if (/[{}]/.test(name) && !GROUPED.test(name)) {
    throw new RangeError(`${got}. Accepted: braces only around a group, as in {group}:name`);
  }
}
