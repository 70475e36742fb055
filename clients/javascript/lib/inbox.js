// The messages from the server, and the requests that they belong to.
import { randomUUID } from 'node:crypto';
import { sha1, untilReplied } from './scripts.js';

const PATIENCE_MS = 15_000; // after a call, the server keeps a waiter's place for this time
const PATIENCE_UNHEARD_MS = 60_000; // the same if messages do not reach the client
const MESSAGE = /^([!-~]+) (\d+) (\d+) (-1|\d+) (\d+) ([0-9a-f]{40})$/; // id permits fence expires_at now signature

/** The subscription of a client. The first waiter opens it, and all waiters share it. */
export class Inbox {
  #redis;
  #subscriber;
  #requests = new Map(); // by id

  constructor(redis, prefix) {
    this.#redis = redis;
    this.channel = `${prefix}:inbox:${randomUUID()}`;
    this.isHeard = true; // whether messages reach the client
  }

  async open() {
    try {
      await untilReplied(() => this.#subscribe());
      await untilReplied(() => this.#redis.publish(this.channel, '')); // throws if an ACL forbids it; the scripts send nothing then
      const [, listeners] = await untilReplied(() => this.#redis.sendCommand(['PUBSUB', 'NUMSUB', this.channel]));
      this.isHeard = listeners > 0; // a proxy can keep messages away
      return this;
    } catch (error) {
      this.close();
      throw error;
    }
  }

  async #subscribe() {
    this.close();
    const subscriber = (this.#subscriber = this.#redis.duplicate());
    subscriber.on('error', () => {}); // node-redis connects and subscribes again; then all waiters ask again
    subscriber.on('ready', () => this.#requests.forEach((request) => request.askAgain()));
    await subscriber.connect();
    await subscriber.subscribe(this.channel, (text) => this.#receive(text));
  }

  close() {
    this.#subscriber?.destroy();
    this.#subscriber = undefined;
  }

  get patience() {
    return this.isHeard ? PATIENCE_MS : PATIENCE_UNHEARD_MS;
  }

  /** The inbox of a request, as an argument of the scripts. The server signs the messages with the secret. */
  address(secret) {
    return this.isHeard ? `${this.channel}#${secret}` : '';
  }

  add(request) {
    this.#requests.set(request.id, request);
  }

  remove(request) {
    this.#requests.delete(request.id);
  }

  /** Releases a grant that arrives although the request was given up. */
  removeLater(request) {
    setTimeout(() => this.remove(request), this.patience).unref();
  }

  #receive(text) {
    const [, id, ...words] = MESSAGE.exec(text) ?? [];
    const request = this.#requests.get(id);
    const signed = text.slice(0, text.lastIndexOf(' '));
    if (!request || words.pop() !== sha1(request.secret + signed)) return;
    const [permits, fence, expires_at, now] = words.map(Number);
    request.deliver({ permits, fence, expires_at, now, clock: performance.now() - now });
  }
}
