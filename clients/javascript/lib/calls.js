// The connections for calls, one to each server. A call whose reply is lost is repeated: with the same id it has the same outcome.
const { completed } = require('./cluster.js');
const { connect } = require('./connections.js');
const { ClosedError, UnexpectedReplyError, UnreachableError } = require('./errors.js');
const { localTime } = require('./node.js');
const { isMoved, isPassing, isReply, named, redirectionOf } = require('./replies.js');
const { LateError, pause, within } = require('./timers.js');

const ATTEMPT_MS = 2_000; // after this time without a reply, the connection counts as broken
const FIRST_PAUSE_MS = 10; // before the first retry; each further one waits twice as long
const LONGEST_PAUSE_MS = 1_000;
const FIRST_MS = 500; // how long the first call of all tries to connect

class Calls {
  #servers;
  #prefix;
  #attemptMs;
  #connections = new Map(); // by address
  #opening = new Map(); // promises of connections, by address
  #isKnown = false; // whether the server has answered any call
  #onMoved;
  #isClosed = false;
  #running = new Set();
  #releases = new Map(); // by key: a set of those that the server has not confirmed
  #broken = new Set(); // the addresses of connections that broke
  #counts;
  /** How many releases may have run after a later call: the server did not run them where they were sent. */
  delays = 0;

  /** `onMoved` is called when the server has become a replica. `counts`: those of the gate. */
  constructor(servers, prefix, timeout, counts, onMoved) {
    this.#servers = servers;
    this.#counts = counts;
    this.#prefix = prefix;
    this.#attemptMs = Math.min(ATTEMPT_MS, timeout / 2);
    this.#onMoved = onMoved;
  }

  /**
   * Runs `call(connection)` on the server of this key until it is answered, but not longer than `until`, by
   * `localTime()`. Does not repeat it when `isOver()`. Sets `attempts.isUnsure` if one of the attempts was not
   * answered. The server runs it `after` the releases for these keys.
   */
  run(key, call, until, { isOver = () => false, attempts = {}, after = [] } = {}) {
    const attempt = async (asked) => {
      const at = await this.#connected(key, asked, until, false, after);
      if (isOver() || this.#isClosed) throw new ClosedError();
      const end = this.#endOf(until);
      return this.#answered(at, call, end, end < until, false);
    };
    const failed = (error) => (attempts.isUnsure ||= !isReply(error));
    return this.#tracked(this.#run(attempt, until, { isOver, failed }));
  }

  /**
   * A release, `call(connection)`. It is sent before this returns, if the connection to the server of its key is
   * open. Else, or if it fails there, the next call for this key sends it ahead of itself, or `confirm` does. In
   * the background this does not keep the process alive. `isUnsure`: it was sent and not answered.
   */
  post(key, call, isBackground) {
    // `on`: the connection that may answer it, or has.
    const release = { key, call, on: undefined, answer: undefined, isUnsure: false };
    if (!this.#releases.has(key)) this.#releases.set(key, new Set());
    this.#releases.get(key).add(release);
    const address = this.#servers.knownAddressOf(key);
    const connection = this.#connections.get(address);
    if (connection && !this.#isClosed) this.#send(release, { address, connection, via: connection }, isBackground);
    return release;
  }

  /**
   * Sends a release until it is answered, but not longer than `until`. In the background this is repeated after
   * every error.
   */
  confirm(release, until, isBackground) {
    const attempt = async (asked) => {
      const at = release.on ? null : await this.#connected(release.key, asked, until, isBackground);
      if (this.#isClosed) throw new ClosedError();
      if (!release.on) this.#send(release, at, isBackground); // else a call has sent it
      const left = until - localTime();
      return left >= this.#attemptMs ? release.answer : within(left, release.answer, isBackground);
    };
    return this.#tracked(this.#run(attempt, until, { isBackground }));
  }

  /** From now on, no call sends it. */
  forget(release) {
    const all = this.#releases.get(release.key);
    all?.delete(release);
    if (all?.size === 0) this.#releases.delete(release.key);
  }

  // Sends a release: the server runs it before what is sent later on this connection.
  #send(release, at, isBackground) {
    release.on = at.connection;
    release.answer = this.#answered(at, release.call, localTime() + this.#attemptMs, true, isBackground).then(
      (reply) => {
        this.forget(release);
        return reply;
      },
      (error) => {
        release.on = undefined;
        release.isUnsure ||= !isReply(error);
        this.delays += 1;
        throw error;
      },
    );
    release.answer.catch(() => {}); // `confirm` may not wait for it at this time
  }

  // Sends the releases for these keys ahead of a call. Waits for those that were sent on another connection.
  async #sendAhead(keys, at, until) {
    for (;;) {
      const releases = keys.flatMap((key) => [...(this.#releases.get(key) ?? [])]);
      const due = releases.filter(({ on }) => !on);
      const elsewhere = releases.filter(({ on }) => on && on !== at.connection);
      if (!elsewhere.length) return due.forEach((release) => this.#send(release, at, false));
      const answers = Promise.allSettled(elsewhere.map(({ answer }) => answer));
      await within(until - localTime(), answers);
    }
  }

  #tracked(running) {
    this.#running.add(running);
    const remove = () => this.#running.delete(running);
    running.then(remove, remove);
    return running;
  }

  // Repeats `attempt(asked)` until it succeeds. `asked`: the address of another node for this attempt.
  async #run(attempt, until, { isOver = () => false, failed = () => {}, isBackground = false }) {
    const first = localTime() + FIRST_MS;
    let wait = FIRST_PAUSE_MS;
    let failure;
    let ask;
    do {
      const asked = ask;
      ask = undefined;
      try {
        const answer = await attempt(asked);
        this.#isKnown = true;
        return answer;
      } catch (error) {
        failed(error);
        if (this.#isClosed) throw new ClosedError();
        if (this.#isFollowed(error)) ask = redirectionOf(error).ask;
        if (!isPassing(error) && !this.#isFollowed(error) && !isBackground) throw named(error, this.#prefix);
        this.#isKnown ||= isReply(error);
        failure = error;
      }
      const isSilent = this.#isKnown || failure instanceof LateError;
      if (!isSilent && localTime() + wait > first) throw cannotConnect(failure);
      await pause(Math.min(wait, until - localTime()), isBackground);
      wait = Math.min(2 * wait, LONGEST_PAUSE_MS);
    } while (localTime() < until && !isOver());
    const why = `the server did not answer in time (${failure.message})`;
    throw new UnreachableError(`${why}. Check that it runs, its load and the network`, { cause: failure });
  }

  // A server that is no cluster does not redirect.
  #isFollowed(error) {
    return this.#servers.isCluster && redirectionOf(error) !== undefined;
  }

  #endOf(until) {
    return Math.min(until, localTime() + this.#attemptMs);
  }

  // The connection for one attempt, to the server of the key or to the node to which the last one referred:
  // `connection`, its `address`, and `via`, which sends commands. The releases for `after` are ahead on it.
  async #connected(key, asked, until, isBackground, after = []) {
    if (this.#isClosed) throw new ClosedError();
    const end = this.#endOf(until);
    const bounded = (promise) => within(end - localTime(), promise, isBackground);
    const address = asked ?? this.#servers.knownAddressOf(key) ?? (await bounded(this.#servers.addressOf(key)));
    let connection = this.#connections.get(address);
    if (!connection) {
      try {
        connection = await bounded(this.#open(address));
      } catch (error) {
        this.#servers.forget();
        throw error;
      }
    }
    const at = { address, connection, via: asked === undefined ? connection : afterAsking(connection) };
    if (after.some((key) => this.#releases.has(key))) await this.#sendAhead(after, at, until);
    return at;
  }

  // The answer to a call that is sent now. `isBroken`: the connection counts as broken if there is none until `end`.
  async #answered({ address, connection, via }, call, end, isBroken, isBackground) {
    try {
      const answer = await within(end - localTime(), call(via), isBackground);
      // After a reply that no script gives, this one may be the reply to another call.
      if (connection.isOver) throw new Error('the connection broke');
      return answer;
    } catch (error) {
      if (isReply(error) ? isMoved(error) : isBroken || error instanceof UnexpectedReplyError) {
        this.#drop(address, connection);
        this.#servers.forget();
      }
      if (isMoved(error)) this.#onMoved();
      this.#follow(error, address);
      throw error;
    }
  }

  #follow(error, from) {
    if (!this.#isFollowed(error)) return;
    const redirection = redirectionOf(error);
    if (redirection.moved) this.#servers.follow(redirection.slot, redirection.moved, from);
    else redirection.ask = completed(redirection.ask, from);
  }

  // All callers share one attempt to connect to an address.
  #open(address) {
    if (!this.#opening.has(address)) {
      const opening = this.#connect(address).finally(() => this.#opening.delete(address));
      this.#opening.set(address, opening);
    }
    return this.#opening.get(address);
  }

  async #connect(address) {
    let isOver = false;
    let connection;
    const onEnd = () => {
      isOver = true;
      this.#remove(address, connection);
    };
    connection = await connect(this.#servers.makeAt(address), onEnd, this.#attemptMs);
    if (isOver) throw new Error('the connection broke');
    this.#connections.set(address, connection);
    if (this.#broken.delete(address)) this.#counts.reconnects += 1;
    if (this.#isClosed) this.#drop(address, connection);
    return connection;
  }

  #remove(address, connection) {
    if (!connection || this.#connections.get(address) !== connection) return;
    this.#connections.delete(address);
    this.#broken.add(address);
  }

  #drop(address, connection) {
    this.#remove(address, connection);
    connection.end();
  }

  /** Waits for the calls that still run, but not longer than `ms`. Then ends the connections. */
  async close(ms) {
    await within(ms, Promise.allSettled([...this.#running])).catch(() => {});
    this.#isClosed = true;
    this.#connections.forEach((connection, address) => this.#drop(address, connection));
  }
}

/** A connection on which each command has permission to use a slot that the node does not have yet. */
function afterAsking(connection) {
  const sendCommand = (args) => {
    connection.sendCommand(['ASKING']).catch(() => {}); // the command after it fails too
    return connection.sendCommand(args);
  };
  return { sendCommand, scripts: connection.scripts };
}

function cannotConnect(error) {
  const why = error.message || error.errors?.map(({ message }) => message).join(', ');
  const remedy = 'Check that it runs and that the address is right';
  return new UnreachableError(`cannot connect to the server (${why}). ${remedy}`, { cause: error });
}

module.exports = { Calls };
