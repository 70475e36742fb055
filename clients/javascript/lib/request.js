// The calls of one id for its permits, until they are granted or the caller gives up.
import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { LineFullError, WaitRevokedError, WaitTimeoutError } from './errors.js';
import { Permit } from './permits.js';
import { replyOf, SHORT_RETRIES_MS } from './scripts.js';
import { checkInteger } from './settings.js';

const RECHECK_MS = 5_000; // a waiter asks again after this time at the latest
const ASK_AGAIN = { fence: 0, expires_at: 0, now: Infinity, clock: 0 }; // a hint that this client creates itself

export class Request {
  #gate;
  #settings;
  #permits;
  #ticket = 0;
  #events = new EventEmitter();
  #messages = [];
  #failure; // ends the wait
  #isAbandoned = false;

  constructor(gate, settings, permits, id = randomUUID()) {
    checkInteger('permits', permits, 1);
    this.#gate = gate;
    this.#settings = settings;
    this.#permits = permits;
    this.id = id;
    this.secret = randomUUID();
  }

  /** Permits at once, or `null`. */
  async tryAcquire() {
    try {
      return this.#granted(await this.#ask(0, ''));
    } catch (error) {
      await this.abandon();
      throw error;
    }
  }

  /** Waits in line until `end`, by `performance.now()`. */
  async acquire(timeout, end) {
    const inbox = await replyOf(() => this.#gate.inbox(), Math.max(0, Math.ceil(end - performance.now())));
    inbox.add(this);
    try {
      // The last call takes a grant whose message has not arrived yet, or leaves the line.
      const permit = (await this.#waitInLine(inbox, end)) ?? this.#granted(await this.#ask(0, '', end));
      inbox.remove(this);
      if (permit) return permit;
    } catch (error) {
      if (error instanceof LineFullError) {
        inbox.remove(this); // the id has no permits and no place in line
      } else {
        this.#isAbandoned = true;
        inbox.removeLater(this);
        await this.abandon();
      }
      throw error;
    }
    const { key, limit } = this.#settings;
    throw new WaitTimeoutError(`${key}: ${this.#permits} of ${limit} permits were not granted within ${timeout} ms`);
  }

  /** Ends the wait with this error. */
  fail(error) {
    this.#failure ??= error;
    this.#events.emit('event');
  }

  /** Messages may have been lost, so the waiter asks again. */
  askAgain() {
    this.deliver(ASK_AGAIN);
  }

  /** A signed message for this id. */
  deliver(message) {
    if (this.#isAbandoned) {
      if (message !== ASK_AGAIN) this.abandon(); // a grant that comes too late
      return;
    }
    this.#messages.push(message);
    this.#events.emit('event');
  }

  /** Releases the permits of the id, or its place in line. If that fails, the lease or the waiter's deadline ends. */
  async abandon() {
    const args = { id: this.id, keep: 0 };
    await this.#gate.callFor(this.#settings, 'release', args, SHORT_RETRIES_MS).catch(() => {});
  }

  // One call of the script `acquire`. With patience, it joins the line. After `end` it is hardly retried.
  async #ask(patience, inbox, end = Infinity) {
    const { limit, lease: lease_ms, maxWaiting: max_waiting, atLeast: at_least_ms, headStart, key } = this.#settings;
    const args = { id: this.id, permits: this.#permits, limit, lease_ms, wait_ms: patience, inbox, ticket: this.#ticket };
    if (max_waiting || at_least_ms || headStart) Object.assign(args, { max_waiting, at_least_ms });
    if (headStart) args.head_start_ms = headStart;
    const retries = Math.max(SHORT_RETRIES_MS, end - performance.now());
    const reply = await this.#gate.callFor(this.#settings, 'acquire', args, retries);
    if (reply.word === 'queued') this.#ticket = reply.ticket;
    if (reply.word === 'above_limit') throw aboveLimit(key, this.#permits, reply.limit);
    if (reply.word === 'denied' && patience > 0) {
      const why = `${reply.waiting} callers wait in line already, and maxWaiting is ${max_waiting}`;
      throw new LineFullError(`${key}: ${why}. Try again later`, reply.waiting);
    }
    return reply;
  }

  #granted(reply, clock = reply.clock) {
    if (reply.word !== undefined && reply.word !== 'granted' && reply.word !== 'held') return null;
    const permit = new Permit(this.#gate, this.#settings, this.id, this.#ticket, reply, clock);
    return permit.isLost ? null : permit;
  }

  // Waits in line, and asks again from time to time. `null`: the timeout ended.
  async #waitInLine(inbox, end) {
    while (performance.now() < end) {
      if (this.#failure) throw this.#failure;
      const reply = await this.#ask(inbox.patience, inbox.address(this.secret), end);
      const permit = this.#granted(reply);
      if (permit) return permit;
      const pause = Math.min(reply.retry_after, RECHECK_MS);
      const granted = await this.#receive(reply, Math.min(performance.now() + pause, end));
      if (granted) return granted;
    }
    return null;
  }

  // Sleeps until it is time to ask again. Returns a permit if a message grants it before that.
  async #receive(reply, until) {
    while (performance.now() < until) {
      if (!this.#messages.length && !this.#failure) {
        const signal = AbortSignal.timeout(Math.max(0, Math.ceil(until - performance.now())));
        await once(this.#events, 'event', { signal }).catch(() => {});
      }
      if (this.#failure) throw this.#failure;
      for (const message of this.#messages.splice(0)) {
        if (message.now < reply.now) continue; // older than the last reply
        if (message.fence === 0 && message.expires_at === -1) {
          throw new WaitRevokedError(`${this.#settings.key}: the wait of ${this.id} was revoked`);
        }
        if (message.fence === 0) {
          until = Math.min(until, message.expires_at + message.clock); // a hint: ask again at this time
        } else if (this.#isNew(message.fence) && message.permits === this.#permits) {
          // The message may have been delayed: its arrival alone would give a deadline that is too late.
          const permit = this.#granted(message, Math.min(message.clock, reply.clock));
          if (permit) return permit;
        }
      }
    }
    return null;
  }

  // Whether the server gave this fence after the place in line: the ticket is the next fence of that time, lower by the head
  // start (both in µs).
  #isNew(fence) {
    return fence > this.#ticket + 1_000 * this.#settings.headStart;
  }
}

export function aboveLimit(key, permits, limit) {
  const why = `${permits} permits are more than the limit in force`;
  return new RangeError(`${key}: ${why}. Accepted: 1 to ${limit}. Ask for fewer`);
}
