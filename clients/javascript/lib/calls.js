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

  /** `onMoved` is called when the server has become a replica. */
  constructor(servers, prefix, timeout, onMoved) {
    this.#servers = servers;
    this.#prefix = prefix;
    this.#attemptMs = Math.min(ATTEMPT_MS, timeout / 2);
    this.#onMoved = onMoved;
  }

  /**
   * Runs `call(connection)` on the server of this key until it is answered, but not longer than `until`, by `localTime()`. Does
   * not repeat it when `isOver()`. In the background it is repeated after every error, and does not keep the process alive. Sets `attempts.isUnsure` if one of them was not answered.
   */
  run(key, call, until, { isOver = () => false, isBackground = false, attempts = {} } = {}) {
    const running = this.#run(key, call, until, isOver, isBackground, attempts);
    this.#running.add(running);
    const remove = () => this.#running.delete(running);
    running.then(remove, remove);
    return running;
  }

  async #run(key, call, until, isOver, isBackground, attempts) {
    const first = localTime() + FIRST_MS;
    let wait = FIRST_PAUSE_MS;
    let failure;
    let ask; // the address of another node for the next attempt
    do {
      const asked = ask;
      ask = undefined;
      try {
        const answer = await this.#attempt(key, asked, call, until, isOver, isBackground);
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
  async #attempt(key, asked, call, until, isOver, isBackground) {
    const end = Math.min(until, localTime() + this.#attemptMs);
    const bounded = (promise) => within(end - localTime(), promise, isBackground);
    const address = asked ?? (await bounded(this.#servers.addressOf(key)));
    let connection;
    try {
      connection = this.#connections.get(address) ?? (await bounded(this.#open(address)));
      if (isOver() || this.#isClosed) throw new ClosedError();
      return await bounded(call(asked === undefined ? connection : afterAsking(connection)));
    } catch (error) {
      if (error instanceof ClosedError) throw error;
      const isBroken = isReply(error) ? isMoved(error) : end < until;
      if (isBroken && connection) this.#drop(address, connection);
      if (isBroken || !connection) this.#servers.forget();
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
    if (this.#isClosed) this.#drop(address, connection);
    return connection;
  }

  #remove(address, connection) {
    if (connection && this.#connections.get(address) === connection) this.#connections.delete(address);
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
  return { sendCommand };
}

function cannotConnect(error) {
  const why = error.message || error.errors?.map(({ message }) => message).join(', ');
  const remedy = 'Check that it runs and that the address is right';
  return new UnreachableError(`cannot connect to the server (${why}). ${remedy}`, { cause: error });
}

module.exports = { Calls };
