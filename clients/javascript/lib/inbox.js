// The messages from the server, and the requests that they belong to.
const { connect } = require('./connections.js');
const { NoPermissionError } = require('./errors.js');
const { localTime, randomBytes } = require('./node.js');
const { isReply, isUnknownCommand, named } = require('./replies.js');
const { sha1 } = require('./scripts.js');
const { after, pause, within } = require('./timers.js');

const PATIENCE_MS = 15_000; // after a call, the server keeps a waiter's place for this time
const PATIENCE_UNHEARD_MS = 3_000; // the same if messages do not reach the client: it asks every second
const ATTEMPT_MS = 2_000; // for one attempt to subscribe
const PING_MS = 700; // after this time without a reply, the subscription counts as dead
const UNHEARD_MS = 60_000; // after this time, a subscription that heard nothing is tried again
const FIRST_PAUSE_MS = 20; // between attempts to subscribe; each further pause is twice as long
const LONGEST_PAUSE_MS = 1_000;
const MESSAGE = /^([!-~]+) (\d+) (\d+) (-1|\d+) (\d+) ([0-9a-f]{40})$/; // id permits fence expires_at now signature

/** The subscription of a client. The first waiter opens it, and all waiters share it. */
class Inbox {
  #servers;
  #prefix;
  #requests = new Map(); // those that wait, by id
  #given = new Map(); // those that were given up
  #connection; // the subscription, while messages are heard
  #attempt; // a promise, while an attempt to subscribe runs
  #isKept = false; // whether the subscription is being opened
  #isVerified = false; // whether a verification runs
  #unheardUntil = 0; // until this time, by `localTime()`, messages do not reach the client
  #isClosed = false;
  #isBroken = false; // whether a subscription was lost, and none has replaced it
  #counts;

  /** `counts`: those of the gate. */
  constructor(servers, prefix, counts) {
    this.#counts = counts;
    this.#servers = servers;
    this.#prefix = prefix;
    this.channel = `${prefix}:inbox:${randomBytes(7).toString('base64url').slice(0, 9)}`;
  }

  /** Waits for the current attempt to subscribe, if one runs. Without a subscription, a waiter only asks again. */
  async ready(ms) {
    if (this.#attempt) await within(ms, this.#attempt).catch(() => {});
  }

  get patience() {
    return this.#connection ? PATIENCE_MS : PATIENCE_UNHEARD_MS;
  }

  /** The inbox of a request, as an argument of the scripts. The server signs the messages with the secret. */
  address(secret) {
    return this.#connection ? `${this.channel}#${secret}` : '';
  }

  add(request) {
    this.#requests.set(request.id, request);
    this.#keep();
  }

  remove(request) {
    this.#requests.delete(request.id);
  }

  /** Releases a grant that arrives although the request was given up. */
  removeLater(request) {
    this.remove(request);
    this.#given.set(request.id, request);
    after(PATIENCE_MS, () => this.#given.delete(request.id), true);
  }

  /** Checks that the subscription is alive, and opens it again if it is not. */
  verify() {
    const connection = this.#connection;
    if (!connection) return this.#keep();
    if (this.#isVerified) return;
    this.#isVerified = true;
    // In capitals, `ioredis` 5.0 sends it over no subscription.
    within(PING_MS, connection.sendCommand(['ping']))
      .catch((error) => isReply(error) || this.#lose(connection))
      .finally(() => (this.#isVerified = false));
  }

  /** Subscribes anew: the server may have moved. */
  reset() {
    if (this.#connection) this.#lose(this.#connection);
  }

  close() {
    this.#isClosed = true;
    this.#connection?.end();
    this.#connection = undefined;
  }

  #lose(connection) {
    connection?.end();
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    this.#isBroken = true;
    this.#keep();
  }

  #isNeeded() {
    return this.#requests.size > 0 && !this.#connection && !this.#isClosed && localTime() >= this.#unheardUntil;
  }

  // Tries to subscribe while waiters need it. Then they ask again: messages may have been lost.
  async #keep() {
    if (this.#isKept) return;
    this.#isKept = true;
    for (let wait = FIRST_PAUSE_MS; this.#isNeeded(); wait = Math.min(2 * wait, LONGEST_PAUSE_MS)) {
      this.#attempt = this.#subscribe();
      const failure = await this.#attempt.catch((error) => error);
      this.#attempt = undefined;
      if (failure instanceof NoPermissionError) {
        this.#requests.forEach((request) => request.fail(failure));
        break;
      }
      if (!failure || wait === FIRST_PAUSE_MS) this.#requests.forEach((request) => request.askAgain());
      if (failure) await pause(wait, true);
    }
    this.#isKept = false;
  }

  async #subscribe() {
    let connection;
    let isOver = false;
    const onEnd = () => {
      isOver = true;
      if (connection) this.#lose(connection);
    };
    try {
      const make = await this.#servers.some();
      connection = await connect(make, onEnd, ATTEMPT_MS);
      const receive = (text) => this.#receive(text);
      await within(ATTEMPT_MS, connection.subscribe(this.channel, receive), true);
      const listeners = await this.#listeners(make);
      if (isOver) throw new Error('the connection broke');
      if (listeners > 0 && !this.#isClosed) {
        this.#connection = connection;
        if (this.#isBroken) this.#counts.reconnects += 1;
        this.#isBroken = false;
        return;
      }
      connection.end(); // a proxy keeps messages away
    } catch (error) {
      connection?.end();
      if (!isUnknownCommand(error)) throw named(error, this.#prefix);
    }
    this.#unheardUntil = localTime() + UNHEARD_MS;
  }

  // The number of subscribers. Rejects if an ACL forbids a message: the scripts send nothing then. On a connection of its own,
  // since a proxy may end a connection, or forward nothing any more, at a command that it does not know.
  async #listeners(make) {
    const connection = await connect(make, () => {}, ATTEMPT_MS);
    const calls = [
      ['PUBLISH', this.channel, ''],
      ['PUBSUB', 'NUMSUB', this.channel],
    ];
    try {
      const replies = Promise.all(calls.map((call) => connection.sendCommand(call)));
      return (await within(ATTEMPT_MS, replies, true))[1][1];
    } finally {
      connection.end();
    }
  }

  #receive(text) {
    const [, id, ...words] = MESSAGE.exec(text) ?? [];
    const request = this.#requests.get(id) ?? this.#given.get(id);
    const signed = text.slice(0, text.lastIndexOf(' '));
    if (!request || words.pop() !== sha1(request.secret + signed)) return;
    const [permits, fence, expires_at, now] = words.map(Number);
    request.deliver({ permits, fence, expires_at, now, clock: localTime() - now });
  }
}

module.exports = { Inbox };
