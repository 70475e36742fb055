// The connection for calls. A call whose reply is lost is repeated: with the same id it has the same outcome.
const { connect } = require('./connections.js');
const { ClosedError, UnreachableError } = require('./errors.js');
const { localTime } = require('./node.js');
const { isMoved, isPassing, isReply, named } = require('./replies.js');
const { LateError, pause, within } = require('./timers.js');

const ATTEMPT_MS = 2_000; // after this time without a reply, the connection counts as broken
const FIRST_PAUSE_MS = 10; // before the first retry; each further one waits twice as long
const LONGEST_PAUSE_MS = 1_000;
const FIRST_MS = 500; // how long the first call of all tries to connect

class Calls {
  #make;
  #prefix;
  #attemptMs;
  #connection;
  #opening; // a promise of the connection
  #isKnown = false; // whether the server has answered any call
  #onMoved;
  #isClosed = false;
  #running = new Set();

  /** `make` makes connections. `onMoved` is called when the server has become a replica. */
  constructor(make, prefix, timeout, onMoved) {
    this.#make = make;
    this.#prefix = prefix;
    this.#attemptMs = Math.min(ATTEMPT_MS, timeout / 2);
    this.#onMoved = onMoved;
  }

  /**
   * Runs `call(connection)` until it is answered, but not longer than `until`, by `localTime()`. Does not repeat it when
   * `isOver()`. In the background it is repeated after every error, and does not keep the process alive. Sets `attempts.isUnsure` if one of them was not answered.
   */
  run(call, until, { isOver = () => false, isBackground = false, attempts = {} } = {}) {
    const running = this.#run(call, until, isOver, isBackground, attempts);
    this.#running.add(running);
    const remove = () => this.#running.delete(running);
    running.then(remove, remove);
    return running;
  }

  async #run(call, until, isOver, isBackground, attempts) {
    const first = localTime() + FIRST_MS;
    let wait = FIRST_PAUSE_MS;
    let failure;
    do {
      try {
        const answer = await this.#attempt(call, until, isOver, isBackground);
        this.#isKnown = true;
        return answer;
      } catch (error) {
        attempts.isUnsure ||= !isReply(error);
        if (this.#isClosed) throw new ClosedError();
        if (!isPassing(error) && !isBackground) throw named(error, this.#prefix);
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

  async #attempt(call, until, isOver, isBackground) {
    const end = Math.min(until, localTime() + this.#attemptMs);
    const connection = this.#connection ?? (await within(end - localTime(), this.#open(), isBackground));
    if (isOver() || this.#isClosed) throw new ClosedError();
    try {
      return await within(end - localTime(), call(connection), isBackground);
    } catch (error) {
      const isBroken = isReply(error) ? isMoved(error) : end < until;
      if (isBroken) this.#drop(connection);
      if (isMoved(error)) this.#onMoved();
      throw error;
    }
  }

  // All callers share one attempt to connect.
  #open() {
    this.#opening ??= this.#connect().finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  async #connect() {
    let isOver = false;
    const onEnd = () => {
      isOver = true;
      if (this.#connection === connection) this.#connection = undefined;
    };
    let connection;
    connection = await connect(this.#make, onEnd, this.#attemptMs);
    if (isOver) throw new Error('the connection broke');
    this.#connection = connection;
    if (this.#isClosed) this.#drop(connection);
    return connection;
  }

  #drop(connection) {
    if (this.#connection === connection) this.#connection = undefined;
    connection.end();
  }

  /** Waits for the calls that still run, but not longer than `ms`. Then ends the connection. */
  async close(ms) {
    await within(ms, Promise.allSettled([...this.#running])).catch(() => {});
    this.#isClosed = true;
    if (this.#connection) this.#drop(this.#connection);
  }
}

function cannotConnect(error) {
  const why = error.message || error.errors?.map(({ message }) => message).join(', ');
  const remedy = 'Check that it runs and that the address is right';
  return new UnreachableError(`cannot connect to the server (${why}). ${remedy}`, { cause: error });
}

module.exports = { Calls };
