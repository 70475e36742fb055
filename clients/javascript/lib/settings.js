// The settings of a semaphore, and the checks of all arguments.
const { InvalidError, MOST } = require('./errors.js');
const { randomUUID } = require('./node.js');
const { sha1 } = require('./scripts.js');

const DEFAULT_LEASE_MS = 30_000;
const LONGEST_MS = 3_155_760_000_000; // a hundred years
const LONGEST_HEAD_START_MS = 86_400_000; // a day
const LONGEST_WORD = 200; // bytes
const GROUPED = /^\{[^{}]+\}:[^{}]+$/; // a name with a group, which is its hash tag
const GROUP = /^(\{([^{}]+)\}:)(.*)$/s; // a text that begins with a group
const LONGEST_GROUP = 100; // bytes, in a name that `nameFrom` makes
const SPACE = /[\p{White_Space}\p{Cc}]/gu;
const NAME_FROM = '. `nameFrom` makes a valid name of any text';
const PREFIX = /^[A-Za-z0-9._:-]{1,64}$/;
const NAMES = ['lease', 'autoRenew', 'maxWaiting', 'atLeast', 'headStart', 'label', 'strict', 'onLost'];

/** What a caller declares about a semaphore. All durations are in milliseconds. */
class Settings {
  /** `share`: the permits of one reader or writer; 0: the caller chooses their number. */
  constructor(gate, kind, name, limit, options = {}, share = 0) {
    checkNames('options', options, NAMES);
    const { lease, autoRenew = false, maxWaiting = 0, atLeast = 0, headStart = 0, label = gate.label } = options;
    const { strict = false, onLost } = options;
    checkName(name);
    checkInteger('limit', limit, 1, MOST);
    if (lease !== undefined && lease !== 'permanent') {
      checkInteger('lease', lease, 1, LONGEST_MS, "in ms, or 'permanent'");
    }
    checkType('autoRenew', autoRenew, 'boolean');
    checkInteger('maxWaiting', maxWaiting, 0, MOST, '(0: no bound)');
    checkInteger('atLeast', atLeast, 0, LONGEST_MS, 'in ms (0: none)');
    checkInteger('headStart', headStart, 0, LONGEST_HEAD_START_MS, 'in ms (0: none)');
    checkType('strict', strict, 'boolean');
    if (onLost !== undefined) checkType('onLost', onLost, 'function');
    if (label !== undefined) checkLabel(label);
    const tag = name.startsWith('{') ? name : `{${name}}`;
    this.keys = ['', '.holders', '.queue'].map((part) => `${gate.prefix}:${kind}${part}:${tag}`);
    this.isLock = kind !== 'semaphore'; // its limit cannot be changed
    this.key = this.keys[0]; // stands for the semaphore in errors
    this.tag = /\{(.*?)\}/.exec(tag)[1]; // the hash tag of the keys
    this.lease = lease === 'permanent' ? 0 : (lease ?? DEFAULT_LEASE_MS); // 0: permanent
    this.firstLease = this.lease || DEFAULT_LEASE_MS; // a permanent lease begins as an ordinary one: the reply may be lost
    this.isRenewed = autoRenew || lease === undefined;
    this.isWatched = onLost !== undefined;
    Object.assign(this, { limit, maxWaiting, atLeast, headStart, label, strict, onLost, share });
  }

  newId() {
    return this.label === undefined ? randomUUID() : `${this.label}/${randomUUID()}`;
  }

  /** The number of permits to ask for. Of a reader-writer lock, a caller asks for one. */
  permitsOf(permits = 1) {
    checkInteger('permits', permits, 1, this.share ? 1 : MOST);
    return this.share || permits;
  }
}

/** The label of an id that was made with one, or `null`. */
function labelOf(id) {
  return /^(.+)\/[0-9a-f-]{36}$/.exec(id)?.[1] ?? null;
}

/** Throws the error for an argument that is not valid. */
function refuse(what, value, accepted) {
  const got =
    typeof value === 'string' ? JSON.stringify(value) : typeof value === 'bigint' ? `${value}n` : shown(value);
  const short = got.length > 100 ? `${got.slice(0, 100)}...` : got;
  throw new InvalidError(`${what}: got ${short}. Accepted: ${accepted}`);
}

// Objects and symbols may not have a text.
function shown(value) {
  return value !== null && ['object', 'symbol', 'function'].includes(typeof value)
    ? `a ${typeof value}`
    : String(value);
}

/** Checks that the options are an object with no other names than these. */
function checkNames(what, options, names) {
  if (typeof options !== 'object' || options === null) refuse(what, options, `an object with ${names.join(', ')}`);
  const other = Object.keys(options).find((name) => !names.includes(name));
  if (other !== undefined) refuse(what, other, names.join(', '));
}

function checkType(what, value, type) {
  if (typeof value !== type) refuse(what, value, `a ${type}`);
}

function checkInteger(what, value, least, most, unit = '') {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    refuse(what, value, `an integer from ${least} to ${most} ${unit}`.trimEnd());
  }
}

/** Checks how long a call waits, in ms. Without a timeout it waits for ever. */
function checkTimeout(timeout) {
  const isNumber = typeof timeout === 'number' && (timeout === 0 || (timeout >= 1 && timeout <= LONGEST_MS));
  if (timeout !== undefined && !isNumber) {
    refuse('timeout', timeout, `1 to ${LONGEST_MS}, in ms; 0: does not wait; undefined: waits for ever`);
  }
}

function checkSignal(signal) {
  if (signal !== undefined && !(signal instanceof AbortSignal)) refuse('signal', signal, 'an AbortSignal');
}

function checkPrefix(prefix) {
  if (typeof prefix !== 'string' || !PREFIX.test(prefix)) {
    refuse('prefix', prefix, "1 to 64 of the letters a-z and A-Z, digits, '.', '_', '-' and ':'");
  }
}

function checkLabel(label) {
  checkWord('label', label, 163);
}

function checkId(id) {
  checkWord('id', id, LONGEST_WORD);
}

function checkName(name) {
  checkWord('name', name, LONGEST_WORD, NAME_FROM);
  if (!hasValidBraces(name)) refuse('name', name, `braces only around a group, as in {group}:name${NAME_FROM}`);
}

/** Makes a valid name of any text. The same text has the same name in all languages. */
function nameFrom(text) {
  if (!isText(text)) refuse('text', text, 'a text without halves of characters');
  if (isWord(text, LONGEST_WORD) && hasValidBraces(text)) return text;
  const [, start, group, after] = GROUP.exec(text) ?? [];
  const hasGroup = group !== undefined && isWord(group, LONGEST_GROUP);
  let name = hasGroup ? start : '';
  const end = `~${sha1(text)}`;
  let left = LONGEST_WORD - end.length - Buffer.byteLength(name);
  for (const character of (hasGroup ? after : text).replace(SPACE, '_').replaceAll('{', '(').replaceAll('}', ')')) {
    left -= Buffer.byteLength(character);
    if (left < 0) break;
    name += character;
  }
  return name + end;
}

function checkWord(what, text, most, otherwise = '') {
  if (!isText(text) || !isWord(text, most)) {
    refuse(what, text, `a text of 1 to ${most} bytes without white space and control characters${otherwise}`);
  }
}

function isText(value) {
  return typeof value === 'string' && value.isWellFormed();
}

function isWord(text, most) {
  const bytes = Buffer.byteLength(text);
  return bytes >= 1 && bytes <= most && text.search(SPACE) < 0;
}

function hasValidBraces(name) {
  return !/[{}]/.test(name) || GROUPED.test(name);
}

module.exports = {
  Settings,
  labelOf,
  refuse,
  checkNames,
  checkType,
  checkInteger,
  checkTimeout,
  checkSignal,
  checkPrefix,
  checkLabel,
  checkId,
  nameFrom,
};
