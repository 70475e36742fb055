// The connections for calls, one to each server. A call whose reply is lost is repeated: with the same id it has the same outcome.
const { completed } = require('./cluster.js');
const { connect } = require('./connections.js');
const { ClosedError, UnreachableError } = require('./errors.js');
const { localTime } = require('./node.js');
const { isMoved, isPassing, isReply, named, redirectionOf } = require('./replies.js');
const { LateError, pause, within } = require('./timers.js');

const ATTEMPT_MS = 2_000; // after this time without a reply, the connection counts as broken
const FIRST_PAUSE_MS = 10; // before the first retry; each further one waits twice as long
const LONGEST_PAUSE_MS = 1_000;
const FIRST_MS = 500; // how long the first call of all tries to connect
const ORDER_MS = 1_000; // how long a call waits for a posted call that may arrive later

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
  #posted = new Map(); // by key: the posted calls that are not answered, a set of `{ on, answered }`
  #broken = new Set(); // the addresses of connections that broke
  #counts;

  /** `onMoved` is called when the server has become a replica. `counts`: those of the gate. */
  constructor(servers, prefix, timeout, counts, onMoved) {
    this.#servers = servers;
    this.#counts = counts;
    this.#prefix = prefix;
    this.#attemptMs = Math.min(ATTEMPT_MS, timeout / 2);
    this.#onMoved = onMoved;
  }

  /**
   * Runs `call(connection)` on the server of this key until it is answered, but not longer than `until`, by `localTime()`. Does
   * not repeat it when `isOver()`. In the background it is repeated after every error, and does not keep the process alive. Sets
   * `attempts.isUnsure` if one of them was not answered. The server runs it `after` the calls that were posted for these keys.
   */
  run(key, call, until, { isOver = () => false, isBackground = false, attempts = {}, after = [] } = {}) {
    return this.#tracked(this.#run(key, call, until, { isOver, isBackground, attempts, after }));
  }

  /**
   * Sends `call(connection)` before it returns, if the connection to the server of this key is open. If this is not answered, runs the
   * call as `run` does.
   */
  post(key, call, until, attempts) {
    const one = { on: undefined }; // `on`: what is sent on this connection now arrives after it
    const all = this.#posted.get(key) ?? new Set();
    this.#posted.set(key, all.add(one));
    one.answered = this.#tracked(this.#post(one, key, call, until, attempts));
    const remove = () => {
      all.delete(one);
      if (!all.size && this.#posted.get(key) === all) this.#posted.delete(key);
    };
    one.answered.then(remove, remove);
    return one.answered;
  }

  async #post(one, key, call, until, attempts) {
    const address = this.#servers.knownAddressOf(key);
    const connection = this.#connections.get(address);
    if (connection && !this.#isClosed) {
      one.on = connection;
      try {
        return await this.#answered(address, connection, call, localTime() + this.#attemptMs, true, false);
      } catch (error) {
        if (this.#isClosed) throw new ClosedError();
        attempts.isUnsure ||= !isReply(error);
        one.on = undefined;
      }
    }
    return this.#run(key, call, until, { isOver: () => false, isBackground: false, attempts, after: [] });
  }

  // The posted calls for these keys that are not ahead on this connection.
  #postedElsewhere(keys, connection) {
    const posted = keys.flatMap((key) => [...(this.#posted.get(key) ?? [])]);
    return posted.filter(({ on }) => on !== connection).map(({ answered }) => answered);
  }

  #tracked(running) {
    this.#running.add(running);
    const remove = () => this.#running.delete(running);
    running.then(remove, remove);
    return running;
  }

  async #run(key, call, until, { isOver, isBackground, attempts, after }) {
    const first = localTime() + FIRST_MS;
    let wait = FIRST_PAUSE_MS;
    let failure;
    let ask; // the address of another node for the next attempt
    do {
      const asked = ask;
      ask = undefined;
      try {
        const answer = await this.#attempt(key, asked, call, until, isOver, isBackground, after);
        this.#isKnown = true;
        return answer;
      } catch (error) {
        attempts.isUnsure ||= !isReply(error);
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

  // One attempt, on the server of the key, or on the node to which the last one referred.
  async #attempt(key, asked, call, until, isOver, isBackground, after) {
    const endOf = () => Math.min(until, localTime() + this.#attemptMs);
    let end = endOf();
    const bounded = (promise) => within(end - localTime(), promise, isBackground);
    const address = asked ?? (await bounded(this.#servers.addressOf(key)));
    let connection = this.#connections.get(address);
    if (!connection) {
      try {
        connection = await bounded(this.#open(address));
      } catch (error) {
        this.#servers.forget();
        throw error;
      }
    }
    const posted = this.#postedElsewhere(after, connection);
    if (posted.length > 0) {
      const ms = Math.min(ORDER_MS, until - localTime());
      await within(ms, Promise.allSettled(posted), isBackground).catch(() => {});
      end = endOf();
    }
    if (isOver() || this.#isClosed) throw new ClosedError();
    const asking = (to) => call(asked === undefined ? to : afterAsking(to));
    return this.#answered(address, connection, asking, end, end < until, isBackground);
  }

  // The answer to a call that is sent now. `isBroken`: the connection counts as broken if there is none until `end`.
  async #answered(address, connection, call, end, isBroken, isBackground) {
    try {
      return await within(end - localTime(), call(connection), isBackground);
    } catch (error) {
      if (isReply(error) ? isMoved(error) : isBroken) {
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
