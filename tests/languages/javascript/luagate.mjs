// Locks and counting semaphores on Redis and Valkey, by the scripts of luagate. Durations are in milliseconds.
import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { loadScripts, runNamed, sha1, untilReplied } from './scripts.mjs';

const PATIENCE_MS = 15_000; // in line; the server wants to be asked again after a third of it, at the latest
const MESSAGE = /^([!-~]+) (\d+) (\d+) (-1|\d+) (\d+) ([0-9a-f]{40})$/; // id permits fence expires_at now signature
const ASK_NOW = { fence: 0, expires_at: 0, now: Infinity, clock: 0 }; // a hint that we give ourselves

/** No permit was granted within the timeout. */
export class WaitTimeoutError extends Error {}

/** The permit is gone: its lease has ended, or it was released. */
export class PermitLostError extends Error {}

/** Somebody took the place in line away. */
export class WaitRevokedError extends Error {}

/** Semaphores and mutexes under a prefix. Takes a connected client of node-redis, and the path of the folder `lua/`. */
export class Luagate {
  #subscriber;
  #inbox;

  constructor(redis, luaFolder, prefix = 'luagate') {
    this.redis = redis.withTypeMapping({});
    this.scripts = loadScripts(luaFolder);
    this.prefix = prefix;
    this.waits = new Map(); // by id
  }

  /** A semaphore: at most `limit` permits are held at once. */
  semaphore(name, limit, { lease = 30_000 } = {}) {
    return new Semaphore(this, 'semaphore', name, limit, lease);
  }

  /** A semaphore of one permit. */
  mutex(name, { lease = 30_000 } = {}) {
    return new Semaphore(this, 'mutex', name, 1, lease);
  }

  /** Closes the connection that listens for grants. */
  close() {
    this.#subscriber?.destroy();
    this.#inbox = undefined;
  }

  // The channel on which grants are told, opened once. Empty where they would not reach us: then one only asks.
  inbox() {
    this.#inbox ??= untilReplied(() => this.#subscribe());
    this.#inbox.catch(() => this.close()); // The next wait opens it anew.
    return this.#inbox;
  }

  async #subscribe() {
    const channel = `${this.prefix}:inbox:${randomUUID()}`;
    this.#subscriber?.destroy();
    const subscriber = (this.#subscriber = this.redis.duplicate());
    subscriber.on('error', () => {}); // It connects and subscribes again by itself. Then everybody asks.
    subscriber.on('ready', () => this.waits.forEach((wait) => wait.emit('message', ASK_NOW)));
    await subscriber.connect();
    await subscriber.subscribe(channel, (text) => this.#hear(text));
    await this.redis.publish(channel, 'test'); // Fails where an ACL forbids it, of which the scripts say nothing.
    const [, listeners] = await this.redis.sendCommand(['PUBSUB', 'NUMSUB', channel]);
    return listeners > 0 ? channel : '';
  }

  #hear(text) {
    const [, id, ...words] = MESSAGE.exec(text) ?? [];
    const wait = this.waits.get(id);
    const signed = text.slice(0, text.lastIndexOf(' '));
    if (!wait || words.pop() !== sha1(wait.secret + signed)) return;
    const [permits, fence, expires_at, now] = words.map(Number);
    wait.emit('message', { permits, fence, expires_at, now, clock: performance.now() - now });
  }
}

/** Gives permits. Made by a `Luagate`. */
class Semaphore {
  constructor(luagate, kind, name, limit, lease) {
    const { redis, scripts, prefix } = luagate;
    const key = (part) => `${prefix}:${kind}${part}:{${name}}`;
    const keys = { meta: key(''), holders: key('.holders'), queue: key('.queue') };
    this.name = keys.meta;
    this.run = (script, args, tries) => runNamed(redis, scripts[`semaphore/${script}`], keys, args, tries);
    Object.assign(this, { luagate, limit, lease });
  }

  /** Acquires permits that are free now: a `Permit`, or `null`. */
  tryAcquire({ permits = 1 } = {}) {
    return this.#acquire(permits, 0, '');
  }

  /** Acquires permits, for which it waits in line: a `Permit`. Throws a `WaitTimeoutError` or a `WaitRevokedError`. */
  async acquire({ permits = 1, timeout = Infinity } = {}) {
    const until = performance.now() + timeout;
    const permit = await this.#acquire(permits, until, await this.luagate.inbox());
    if (!permit) throw new WaitTimeoutError(`${this.name}: not granted within ${timeout} ms`);
    return permit;
  }

  /** Runs `work(permit)` with what `acquire(options)` gives, and releases it. */
  async use(options, work) {
    const permit = await this.acquire(options);
    try {
      return await work(permit);
    } finally {
      await permit.release();
    }
  }

  async #acquire(permits, until, channel) {
    const wait = Object.assign(new EventEmitter(), { id: randomUUID(), secret: randomUUID(), permits, heard: [] });
    wait.on('message', (message) => wait.heard.push(message));
    this.luagate.waits.set(wait.id, wait);
    try {
      const permit = await this.#waitInLine(wait, until, channel && `${channel}#${wait.secret}`);
      this.luagate.waits.delete(wait.id);
      return permit;
    } catch (error) {
      const abandon = () => this.run('release', { id: wait.id, keep: 0 }, 1).catch(() => {});
      wait.on('message', abandon); // a grant that comes too late
      setTimeout(() => this.luagate.waits.delete(wait.id), PATIENCE_MS).unref();
      await abandon();
      throw error;
    }
  }

  async #waitInLine(wait, until, inbox) {
    const { id, permits, heard } = wait;
    const terms = { id, permits, limit: this.limit, lease_ms: this.lease, inbox };
    let ticket = 0;
    for (;;) {
      // The last call does not wait: it takes a grant that is on its way, or leaves the line.
      const wait_ms = performance.now() < until ? PATIENCE_MS : 0;
      const reply = await this.run('acquire', { ...terms, wait_ms, ticket });
      if (reply.word === 'denied') return null;
      if (reply.word === 'above_limit') throw new RangeError(`${this.name}: ${permits} are more than ${reply.limit}`);
      if (reply.word !== 'queued') return new Permit(this, id, ticket, reply, reply.clock);
      ticket = reply.ticket;
      // Those in front may be dead, and then nobody else notices that a lease ends: with `n` in front ask after `n` s.
      const pause = Math.min(reply.retry_after, (reply.position - 1) * 1_000 || Infinity);
      let askAt = Math.min(performance.now() + pause, until);
      while (performance.now() < askAt) {
        const signal = AbortSignal.timeout(Math.max(0, Math.ceil(askAt - performance.now())));
        if (!heard.length) await once(wait, 'message', { signal }).catch(() => {});
        for (const message of heard.splice(0)) {
          if (message.fence > ticket && message.permits === permits) {
            const permit = new Permit(this, id, ticket, message, Math.min(message.clock, reply.clock));
            if (!permit.isLost) return permit;
          } else if (message.fence === 0 && message.now >= reply.now) {
            if (message.expires_at === -1) throw new WaitRevokedError(`${this.name}: ${id}`);
            askAt = Math.min(askAt, message.expires_at + message.clock); // a hint, with the time to ask at
          }
        }
      }
    }
  }
}

/** Held permits: `id`, `permits`, `fence`, `ticket` (0: did not wait), `expiresAt` (the server's ms; -1: never). */
class Permit {
  #semaphore;
  #end;

  constructor(semaphore, id, ticket, { permits, fence, expires_at }, clock) {
    Object.assign(this, { id, permits, fence, ticket });
    this.#semaphore = semaphore;
    this.#lasts(expires_at, clock);
  }

  #lasts(expiresAt, clock) {
    this.expiresAt = expiresAt;
    this.#end = expiresAt === -1 ? Infinity : expiresAt + clock - 1;
  }

  /** How long the lease still lasts. */
  remaining() {
    return Math.max(0, this.#end - performance.now());
  }

  /** Whether the lease has ended, or the permit was released. */
  get isLost() {
    return this.remaining() === 0;
  }

  /** Begins the lease anew, at best when a third of it is over. Throws a `PermitLostError`. */
  async refresh() {
    const args = { id: this.id, lease_ms: this.#semaphore.lease };
    const { word, expires_at, now, clock } = await this.#semaphore.run('refresh', args);
    this.#lasts(word === 'lost' ? now : expires_at, clock);
    if (word === 'lost') throw new PermitLostError(`${this.#semaphore.name}: the lease of ${this.id} has ended`);
  }

  /** Gives the permits back. Says whether they were still held. */
  async release() {
    this.#end = 0;
    const { word } = await this.#semaphore.run('release', { id: this.id, keep: 0 });
    return word === 'released';
  }

  /** Releases it at the end of an `await using`. */
  [Symbol.asyncDispose]() {
    return this.release();
  }
}
