// Semaphores and locks on one server, or on a cluster.
const { Calls } = require('./calls.js');
const { serversOf } = require('./connections.js');
const { ClosedError, LuagateError, MOST } = require('./errors.js');
const { Inbox } = require('./inbox.js');
const { localTime, setImmediate } = require('./node.js');
const { argvOf, callOnce, loadScripts } = require('./scripts.js');
const { Semaphore } = require('./semaphore.js');
const { checkInteger, checkLabel, checkNames, checkPrefix, checkType, Settings } = require('./settings.js');
const { Several } = require('./several.js');
const { pause } = require('./timers.js');
const { Wait } = require('./wait.js');

const CALL_TIMEOUT_MS = 4_000;
const LONGEST_CALL_TIMEOUT_MS = 86_400_000;
const CLOSE_MS = 1_000; // how long `close` waits for calls that still run
const RELEASE_MS = 60_000; // a release in the background is repeated for this time and the lease
const LATE_MS = 1_000; // from the release of an id to a second one, if a call of it may reach the server late
const NAMES = ['prefix', 'scripts', 'callTimeout', 'label', 'onWarning'];

class Luagate {
  #calls;
  #scripts;
  #callTimeout;
  #onWarning;
  #counts = { granted: 0, denied: 0, lineFull: 0, waited: 0, lost: 0, renewed: 0, reconnects: 0 };
  #waits = new Set();
  #closing; // a promise

  constructor(client, options = {}) {
    checkNames('options', options, NAMES);
    const { prefix = 'luagate', scripts, callTimeout = CALL_TIMEOUT_MS, label, onWarning = () => {} } = options;
    checkPrefix(prefix);
    if (scripts !== undefined) checkType('scripts', scripts, 'string');
    checkInteger('callTimeout', callTimeout, 1, LONGEST_CALL_TIMEOUT_MS, 'in ms');
    if (label !== undefined) checkLabel(label);
    checkType('onWarning', onWarning, 'function');
    const servers = serversOf(client);
    this.#scripts = loadScripts(scripts);
    this.#callTimeout = callTimeout;
    this.#onWarning = onWarning;
    const counts = this.#counts;
    this.#calls = new Calls(servers, prefix, callTimeout, counts, () => this.inbox.reset());
    const inbox = new Inbox(servers, prefix, counts);
    const own = { prefix, label, inbox, counts }; // `counts`: where this package counts
    Object.entries(own).forEach(([name, value]) => Object.defineProperty(this, name, { value }));
  }

  semaphore(name, limit, options) {
    return new Semaphore(this, new Settings(this, 'semaphore', name, limit, options));
  }

  mutex(name, options) {
    return new Semaphore(this, new Settings(this, 'mutex', name, 1, options));
  }

  rwlock(name, options) {
    const part = (share) => new Semaphore(this, new Settings(this, 'rwlock', name, MOST, options, share));
    return { read: part(1), write: part(MOST) };
  }

  several(wants) {
    return new Several(this, wants);
  }

  counters() {
    return Object.freeze({ ...this.#counts });
  }

  async close() {
    return (this.#closing ??= this.#close());
  }

  get isClosed() {
    return this.#closing !== undefined;
  }

  async #close() {
    await null; // from here on, the gate is closed
    this.#waits.forEach((wait) => wait.fail(new ClosedError()));
    await new Promise((resolve) => setImmediate(resolve)); // the waiters send their releases
    await this.#calls.close(CLOSE_MS);
    this.inbox.close();
  }

  checkOpen() {
    if (this.isClosed) throw new ClosedError();
  }

  /** The latest time, by `localTime()`, for a call without a deadline of its own. */
  until() {
    return localTime() + this.#callTimeout;
  }

  /** Waits in line: runs `work(wait)`. */
  async wait({ timeout, signal }, work) {
    const wait = new Wait({ timeout, signal });
    this.checkOpen();
    this.#waits.add(wait);
    try {
      return await wait.run(work);
    } finally {
      this.#waits.delete(wait);
    }
  }

  /**
   * Calls a script until it replies: with the same id it has the same outcome. The server runs it after the
   * releases for the same keys. A release need not wait for them, and a refresh must not. `check(reply)` throws if
   * the script never returns this reply.
   */
  async run(name, keys, argv, until = this.until(), { check = () => {}, ...options } = {}) {
    const script = this.#scripts[`semaphore/${name}`];
    const after = name === 'release' || name === 'refresh' ? [] : keys;
    let delays; // when the call was sent
    const call = async (connection) => {
      delays = this.#calls.delays;
      const reply = await callOnce(connection, script, keys, argv);
      check(reply);
      return reply;
    };
    const reply = await this.#calls.run(keys[0], call, until, { ...options, after });
    // A release that should have run before this call may have failed. Now it is ahead.
    const isOld = reply.word === 'denied' && delays !== this.#calls.delays && localTime() < until;
    return isOld ? this.#calls.run(keys[0], call, until, { ...options, after }) : reply;
  }

  /** Calls a script of a semaphore with arguments by name. */
  call({ keys }, name, args, until, options) {
    return this.run(name, keys, argvOf(this.#scripts[`semaphore/${name}`], args), until, options);
  }

  #post({ key, keys }, id, isBackground) {
    const script = this.#scripts['semaphore/release'];
    const argv = argvOf(script, { id, keep: 0 });
    const how = { isSure: true, missing: () => (this.#calls.delays += 1) }; // a later call may run before it
    return this.#calls.post(key, (connection) => callOnce(connection, script, keys, argv, how), isBackground);
  }

  /**
   * Releases what the id has. Sends this before it returns, if it can. Resolves to the `word` of the reply, and
   * `isUnsure` if the release was repeated. After an error it goes on in the background. `attempts`: of the calls
   * that acquired it.
   */
  async release(settings, id, attempts) {
    this.checkOpen();
    const release = this.#post(settings, id, false);
    try {
      const { word } = await this.#calls.confirm(release, this.until(), false);
      if (attempts.isUnsure) this.releaseAgain(settings, id);
      return { word, isUnsure: release.isUnsure };
    } catch (error) {
      this.#releaseLater(release, settings, id, attempts);
      throw error;
    }
  }

  /**
   * Releases what the id has, in the background: until the server has confirmed it, or the lease has ended. If one of its
   * `attempts` was not answered, releases it again later.
   */
  releaseLater(settings, id, attempts = {}) {
    return this.#releaseLater(this.#post(settings, id, true), settings, id, attempts);
  }

  async #releaseLater(release, settings, id, attempts) {
    const lease = settings.lease === 0 ? Infinity : Math.max(settings.lease, settings.atLeast);
    const until = localTime() + Math.max(lease, RELEASE_MS);
    try {
      await this.#calls.confirm(release, until, true);
      if (attempts.isUnsure) this.releaseAgain(settings, id);
    } catch (error) {
      this.#calls.forget(release);
      this.warnOfRelease(`${settings.key}: the release of ${id} failed`, error);
    }
  }

  /** Releases what a call of this id acquires that reaches the server late. */
  async releaseAgain(settings, id) {
    await pause(LATE_MS, true);
    if (!this.isClosed) await this.releaseLater(settings, id);
  }

  /** Warns that a release has failed. */
  warnOfRelease(message, cause) {
    const isClosed = cause instanceof ClosedError;
    this.warn(isClosed ? 'the gate is closed: what is not released stays held until its lease ends' : message, cause);
  }

  warn(message, cause) {
    const warning = cause instanceof LuagateError && cause.message === message ? cause : new Error(message, { cause });
    this.quietly(() => this.#onWarning(warning));
  }

  /** Runs a callback of the user. Its error does not end the renewal. */
  quietly(callback) {
    try {
      callback();
    } catch (error) {
      process.emitWarning(error);
    }
  }
}

module.exports = { Luagate };
