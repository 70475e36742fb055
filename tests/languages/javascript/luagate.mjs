// Locks and counting semaphores on Redis and Valkey, with the scripts of luagate. Durations are in milliseconds.
//
//   const [user, total] = [gate.semaphore('{market}:user:7', 3), gate.semaphore('{market}:total', 100)];
//   const permits = await gate.several([[user, 1], [total, 1]]).acquire({ timeout: 2_000 }); // one of each, or none
//
// `tryAcquire` of several semaphores needs names with the same `{group}:`.
import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { allOf, Permit, PermitLostError, Permits, releasedAfter } from './permits.mjs';
import { loadScripts, runListed, runNamed, sha1, untilReplied } from './scripts.mjs';

export { PermitLostError };

const PATIENCE_MS = 15_000; // after a call, the server keeps a waiter's place for this time; ask again after a third of it
const MESSAGE = /^([!-~]+) (\d+) (\d+) (-1|\d+) (\d+) ([0-9a-f]{40})$/; // id permits fence expires_at now signature
const ASK_NOW = { fence: 0, expires_at: 0, now: Infinity, clock: 0 }; // a hint that this client creates itself

const MOST_SEMAPHORES = 64; // the most semaphores that `several` takes
const GROUPED = /^\{[^{}]+\}:[^{}]+$/; // a name with a group, which is its hash tag

/** The permits were not granted within the timeout. */
export class WaitTimeoutError extends Error {}

/** The line has `maxWaiting` waiters or more. `waiting` is their number. */
export class LineFullError extends Error {
  constructor(message, waiting) {
    super(message);
    this.waiting = waiting;
  }
}

/** Another client removed this waiter from the line. */
export class WaitRevokedError extends Error {}

/** Semaphores and mutexes on one server. Takes a connected client of node-redis, and the path of the folder `lua/`. */
export class Luagate {
  #subscriber;
  #inbox;

  constructor(redis, luaFolder, prefix = 'luagate') {
    this.redis = redis.withTypeMapping({});
    this.scripts = loadScripts(luaFolder);
    this.prefix = prefix;
    this.waits = new Map(); // by id
  }

  /**
   * A semaphore: at most `limit` permits are held at a time. Options:
   * - `lease`; default 30 s.
   * - `maxWaiting`: if this number of callers or more wait in line, `acquire` throws a `LineFullError`. 0: no bound.
   * - `atLeast`: a permit that is released earlier than this after its grant stays in use until then. The lease is not
   *   shorter.
   */
  semaphore(name, limit, options) {
    return new Semaphore(this, 'semaphore', name, limit, options);
  }

  /** A semaphore of one permit, with the same options. */
  mutex(name, options) {
    return new Semaphore(this, 'mutex', name, 1, options);
  }

  /** Permits of several semaphores together, all or none: `[[semaphore, permits], ...]`. */
  several(wants) {
    return new Several(this, wants);
  }

  /** Closes the connection that receives grant messages. */
  close() {
    this.#subscriber?.destroy();
    this.#inbox = undefined;
  }

  // The channel for grant messages, opened once. Empty if messages cannot arrive: then waiters only ask again.
  inbox() {
    this.#inbox ??= untilReplied(() => this.#subscribe());
    this.#inbox.catch(() => this.close()); // the next wait opens it again
    return this.#inbox;
  }

  async #subscribe() {
    const channel = `${this.prefix}:inbox:${randomUUID()}`;
    this.#subscriber?.destroy();
    const subscriber = (this.#subscriber = this.redis.duplicate());
    subscriber.on('error', () => {}); // node-redis connects and subscribes again; then all waiters ask again
    subscriber.on('ready', () => this.waits.forEach((wait) => wait.emit('message', ASK_NOW)));
    await subscriber.connect();
    await subscriber.subscribe(channel, (text) => this.#receive(text));
    await this.redis.publish(channel, 'test'); // fails if an ACL forbids it; the scripts do not report that
    const [, listeners] = await this.redis.sendCommand(['PUBSUB', 'NUMSUB', channel]);
    return listeners > 0 ? channel : '';
  }

  #receive(text) {
    const [, id, ...words] = MESSAGE.exec(text) ?? [];
    const wait = this.waits.get(id);
    const signed = text.slice(0, text.lastIndexOf(' '));
    if (!wait || words.pop() !== sha1(wait.secret + signed)) return;
    const [permits, fence, expires_at, now] = words.map(Number);
    wait.emit('message', { permits, fence, expires_at, now, clock: performance.now() - now });
  }
}

/** Grants permits. Created by a `Luagate`. */
class Semaphore {
  constructor(luagate, kind, name, limit, { lease = 30_000, maxWaiting = 0, atLeast = 0 } = {}) {
    const { redis, scripts, prefix } = luagate;
    const tag = GROUPED.test(name) ? name : `{${name}}`;
    const keys = ['', '.holders', '.queue'].map((part) => `${prefix}:${kind}${part}:${tag}`);
    this.name = keys[0];
    this.run = (script, args, tries) => runNamed(redis, scripts[`semaphore/${script}`], keys, args, tries);
    Object.assign(this, { luagate, keys, limit, lease, maxWaiting, atLeast });
  }

  /** Acquires permits at once, without waiting. Returns a `Permit`, or `null`. */
  tryAcquire({ permits = 1 } = {}) {
    return this.#acquire(permits, 0, '', new Permits([]));
  }

  /**
   * Waits in line for permits. Returns a `Permit`. Throws a `WaitTimeoutError`, a `LineFullError` or a
   * `WaitRevokedError`.
   */
  acquire({ permits = 1, timeout = Infinity } = {}) {
    return this.acquireBeside(new Permits([]), permits, timeout, performance.now() + timeout);
  }

  // Like `acquire`, and refreshes the permits `held` meanwhile.
  async acquireBeside(held, permits, timeout, until) {
    const permit = await this.#acquire(permits, until, await this.luagate.inbox(), held);
    if (!permit) {
      throw new WaitTimeoutError(`${this.name}: ${permits} of ${this.limit} permits were not granted within ${timeout} ms`);
    }
    return permit;
  }

  /** Acquires a permit with `acquire(options)`, runs `work(permit)`, and releases the permit. */
  async use(options, work) {
    return releasedAfter(await this.acquire(options), work);
  }

  // Releases the permits of the id, or its place in line. If that fails, the lease or the waiter's deadline on the
  // server ends.
  abandon(id) {
    return this.run('release', { id, keep: 0 }, 1).catch(() => {});
  }

  aboveLimit(permits, limit) {
    const why = `${permits} permits are more than the limit in force`;
    return new RangeError(`${this.name}: ${why}. Accepted: 1 to ${limit}. Ask for fewer`);
  }

  async #acquire(permits, until, channel, held) {
    const wait = Object.assign(new EventEmitter(), { id: randomUUID(), secret: randomUUID(), permits, messages: [] });
    wait.on('message', (message) => wait.messages.push(message));
    this.luagate.waits.set(wait.id, wait);
    try {
      const permit = await this.#waitInLine(wait, until, channel && `${channel}#${wait.secret}`, held);
      this.luagate.waits.delete(wait.id);
      return permit;
    } catch (error) {
      if (error instanceof LineFullError) {
        this.luagate.waits.delete(wait.id); // the id has no permits and no place in line
        throw error;
      }
      wait.on('message', () => this.abandon(wait.id)); // releases a grant that arrives too late
      setTimeout(() => this.luagate.waits.delete(wait.id), PATIENCE_MS).unref();
      await this.abandon(wait.id);
      throw error;
    }
  }

  async #waitInLine(wait, until, inbox, held) {
    const { id, permits, messages } = wait;
    const terms = { id, permits, limit: this.limit, lease_ms: this.lease, inbox };
    const { maxWaiting: max_waiting, atLeast: at_least_ms } = this;
    if (max_waiting || at_least_ms) Object.assign(terms, { max_waiting, at_least_ms });
    let ticket = 0;
    for (;;) {
      await held.keep();
      // The last call does not wait: it takes a grant whose message has not arrived yet, or leaves the line.
      const wait_ms = performance.now() < until ? PATIENCE_MS : 0;
      const reply = await this.run('acquire', { ...terms, wait_ms, ticket });
      if (reply.word === 'denied' && wait_ms > 0) {
        const why = `${reply.waiting} callers wait in line already, and maxWaiting is ${this.maxWaiting}`;
        throw new LineFullError(`${this.name}: ${why}. Try again later`, reply.waiting);
      }
      if (reply.word === 'denied') return null;
      if (reply.word === 'above_limit') throw this.aboveLimit(permits, reply.limit);
      if (reply.word !== 'queued') return new Permit(this, id, ticket, reply, reply.clock);
      ticket = reply.ticket;
      // If all `n` waiters ahead are dead, only this one notices the next lease end. So ask after `n` seconds.
      const pause = Math.min(reply.retry_after, (reply.position - 1) * 1_000 || Infinity);
      let askAt = Math.min(performance.now() + pause, until);
      while (performance.now() < askAt) {
        const pause = Math.min(await held.keep(), askAt - performance.now());
        const signal = AbortSignal.timeout(Math.max(0, Math.ceil(pause)));
        if (!messages.length) await once(wait, 'message', { signal }).catch(() => {});
        for (const message of messages.splice(0)) {
          if (message.fence > ticket && message.permits === permits) {
            const permit = new Permit(this, id, ticket, message, Math.min(message.clock, reply.clock));
            if (!permit.isLost) return permit;
          } else if (message.fence === 0 && message.now >= reply.now) {
            if (message.expires_at === -1) throw new WaitRevokedError(`${this.name}: the wait of ${id} was revoked`);
            askAt = Math.min(askAt, message.expires_at + message.clock); // a hint: ask again at this time
          }
        }
      }
    }
  }
}

/** Grants permits of several semaphores, all or none. Created by a `Luagate`. */
class Several {
  #luagate;
  #wants;

  constructor(luagate, wants) {
    const names = wants.map(([semaphore]) => semaphore.name);
    const twice = names.find((name, i) => names.indexOf(name) < i);
    if (names.length < 1 || names.length > MOST_SEMAPHORES) {
      throw new RangeError(`several: got ${names.length} semaphores. Accepted: 1 to ${MOST_SEMAPHORES}`);
    }
    if (twice) {
      const instead = 'Ask for more permits of it instead';
      throw new RangeError(`several: got ${twice} twice. Accepted: each semaphore once. ${instead}`);
    }
    if (wants.some(([semaphore]) => semaphore.luagate !== luagate)) {
      throw new RangeError('several: got a semaphore of another Luagate. Accepted: semaphores of the same Luagate');
    }
    this.#luagate = luagate;
    this.#wants = wants.map(([semaphore, permits]) => ({ semaphore, permits }));
  }

  /** Acquires permits of all at once. Returns `Permits`, or `null`. Names must share a group, as in `{x}:a` and `{x}:b`. */
  async tryAcquire() {
    const tags = new Set(this.#wants.map(({ semaphore }) => /\{(.*?)\}/.exec(semaphore.name)[1]));
    if (tags.size > 1) {
      const accepted = 'names with one hash tag, as {x}:a and {x}:b. For other names, call acquire';
      throw new RangeError(`tryAcquire: got the hash tags ${[...tags].join(', ')}. Accepted: ${accepted}`);
    }
    const id = randomUUID();
    try {
      return await this.#tryAcquire(id);
    } catch (error) {
      await Promise.all(this.#wants.map(({ semaphore }) => semaphore.abandon(id)));
      throw error;
    }
  }

  async #tryAcquire(id) {
    const { redis, scripts } = this.#luagate;
    const keys = this.#wants.flatMap(({ semaphore }) => semaphore.keys);
    const terms = ({ semaphore, permits }) => [permits, semaphore.limit, semaphore.lease, semaphore.atLeast];
    const args = [id, ...this.#wants.flatMap(terms)];
    const reply = await runListed(redis, scripts['semaphore/try_acquire_all'], keys, args);
    if (reply.word === 'denied') return null;
    if (reply.word === 'above_limit') {
      const { semaphore, permits } = this.#wants[reply.index - 1];
      throw semaphore.aboveLimit(permits, reply.limit);
    }
    const permits = this.#wants.map(({ semaphore }, i) => {
      const [permits, fence, expires_at] = reply.permits[i];
      return new Permit(semaphore, id, 0, { permits, fence, expires_at }, reply.clock);
    });
    return new Permits(permits);
  }

  /**
   * Waits in line for permits of all, one semaphore after the other: by limit, the smallest first, then by key. Permits
   * that are already held are refreshed meanwhile. Throws what `acquire` of a semaphore throws, and a `PermitLostError`.
   * After an error nothing stays held.
   */
  async acquire({ timeout = Infinity } = {}) {
    const until = performance.now() + timeout;
    const byBytes = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
    const inOrder = this.#wants.toSorted(
      ({ semaphore: a }, { semaphore: b }) => a.limit - b.limit || byBytes(a.name, b.name),
    );
    const held = new Permits([]);
    const granted = new Map();
    try {
      for (const { semaphore, permits } of inOrder) {
        const permit = await semaphore.acquireBeside(held, permits, timeout, until);
        held.permits.push(permit);
        granted.set(semaphore, permit);
      }
      await allOf(held.permits.slice(0, -1), (permit) => permit.refresh());
      if (held.isLost) throw new PermitLostError('several: a lease ended before all permits were granted');
    } catch (error) {
      await held.release().catch(() => {});
      throw error;
    }
    return new Permits(this.#wants.map(({ semaphore }) => granted.get(semaphore)));
  }

  /** Acquires permits with `acquire(options)`, runs `work(permits)`, and releases all. */
  async use(options, work) {
    return releasedAfter(await this.acquire(options), work);
  }
}
