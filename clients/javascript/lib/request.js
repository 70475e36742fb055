// The calls of one id for its permits, until they are granted or the caller gives up.
const {
  AboveLimitError,
  DeniedError,
  LimitMismatchError,
  LineFullError,
  RevokedError,
  TimedOutError,
  UNKNOWN,
  UnreachableError,
} = require('./errors.js');
const { localTime, randomUUID } = require('./node.js');
const { Permit } = require('./permits.js');
const { after, pause, within } = require('./timers.js');
const { LAST_CALL_MS } = require('./wait.js');

const RECHECK_MS = 4_500; // a waiter asks again after this time at the latest
const OUTAGE_MS = 10_000; // how long a waiter goes on while the server does not answer
const OPEN_MS = 2_000; // how long the first call waits for the subscription
const LOST_PAUSE_MS = 10; // before the next call, after a grant whose lease ended before its reply was read

class Request {
  #gate;
  #settings;
  #permits;
  #ticket = 0;
  #limit; // in force, by the last reply
  #usage = UNKNOWN; // by the last reply
  #newest = 0; // the highest fence that was received
  #messages = [];
  #asksAgain = false; // before the time that the last reply named
  #wake = () => {};
  #wait;
  #permit; // that was granted
  #confirms = true; // whether a permanent permit is made permanent as soon as it is granted
  #isOver = false; // no further call may acquire
  #mayHold = false; // whether a call may have left permits or a place in line
  #attempts = {}; // `isUnsure`: one of them was not answered

  constructor(gate, settings, permits, id = settings.newId()) {
    this.#gate = gate;
    this.#settings = settings;
    this.#permits = permits;
    this.#limit = settings.limit;
    this.id = id;
    this.secret = randomUUID();
  }

  /** Permits at once. */
  async tryAcquire() {
    const until = this.#gate.until();
    try {
      do {
        const reply = await this.#ask(0, '', until);
        const permit = this.#granted(reply);
        if (permit) {
          await this.#settled(permit, until);
          this.#gate.counts.granted += 1;
          return permit;
        }
        if (reply.word === 'denied') {
          this.#gate.counts.denied += 1;
          throw new DeniedError(this.#settings.key, reply);
        }
        await pause(LOST_PAUSE_MS);
      } while (localTime() < until); // the lease ended before the reply was read
      throw new UnreachableError(`${this.#settings.key}: the replies take longer than the lease. Use a longer lease`);
    } catch (error) {
      await this.#giveUp(until);
      throw error;
    }
  }

  /** Waits in line until the wait ends. `confirms`: a permanent permit has no end when this returns. */
  async acquire(wait, confirms = true) {
    const { inbox } = this.#gate;
    this.#wait = wait;
    this.#confirms = confirms;
    inbox.add(this);
    try {
      const permit = await wait.race(this.#waitInLine(inbox));
      inbox.remove(this);
      this.#count();
      return permit;
    } catch (error) {
      this.#count(error);
      this.#wake();
      if (this.#mayHold) inbox.removeLater(this);
      else inbox.remove(this);
      await this.#giveUp(wait.latest);
      throw error;
    }
  }

  // Counts how a wait in line ended.
  #count(error) {
    const { counts } = this.#gate;
    const isFull = error instanceof LineFullError;
    if (isFull) counts.lineFull += 1;
    if (isFull || error instanceof TimedOutError) counts.denied += 1;
    if (error) return;
    counts.granted += 1;
    if (this.#ticket) counts.waited += 1;
  }

  fail(error) {
    this.#wait.fail(error);
  }

  /** Messages may have been lost. */
  askAgain() {
    this.#asksAgain = true;
    this.#wake();
  }

  /** A signed message for this id. */
  deliver(message) {
    if (this.#isOver) {
      this.#gate.releaseLater(this.#settings, this.id, this.#attempts); // a grant that comes too late
      return;
    }
    this.#messages.push(message);
    this.#wake();
  }

  // Releases what the id may have, and goes on in the background if that is not answered at once.
  async #giveUp(latest) {
    this.#isOver = true;
    this.#permit?.lease.finish();
    if (!this.#mayHold) return;
    const released = this.#gate.releaseLater(this.#settings, this.id, this.#attempts);
    const ms = Math.min(LAST_CALL_MS, latest - localTime());
    if (ms > 0) await within(ms, released).catch(() => {});
  }

  // One call of the script `acquire`. With patience, it joins the line.
  async #ask(patience, inbox, until) {
    const {
      limit,
      firstLease: lease_ms,
      maxWaiting: max_waiting,
      atLeast: at_least_ms,
      headStart,
      key,
    } = this.#settings;
    const args = {
      id: this.id,
      permits: this.#permits,
      limit,
      lease_ms,
      wait_ms: patience,
      inbox,
      ticket: this.#ticket,
    };
    if (max_waiting || at_least_ms || headStart) Object.assign(args, { max_waiting, at_least_ms });
    if (headStart) args.head_start_ms = headStart;
    this.#mayHold = true;
    this.#asksAgain = false;
    const isOver = () => this.#isOver || this.#wait?.isOver;
    const reply = await this.#gate.call(this.#settings, 'acquire', args, until, { isOver, attempts: this.#attempts });
    if (reply.word === 'denied' || reply.word === 'above_limit') this.#mayHold = this.#attempts.isUnsure;
    if (reply.word === 'queued') this.#ticket = reply.ticket;
    this.#limit = reply.limit;
    if (reply.word === 'above_limit') throw new AboveLimitError(key, this.#permits, reply.limit);
    checkLimit(this.#settings, reply.limit);
    this.#usage = { waiting: reply.position ?? 0, next_expiry: -1, ...reply };
    if (reply.word === 'denied' && patience > 0) throw new LineFullError(key, reply, max_waiting);
    return reply;
  }

  // The permit of this grant; `null` if the reply grants nothing, or the lease has ended by now.
  #granted({ word = 'granted', ...grant }, clock = grant.clock) {
    if (word !== 'granted' && word !== 'held') return null;
    const given = [this.id, this.#ticket, this.#limit, grant, clock, this.#attempts];
    const permit = new Permit(this.#gate, this.#settings, ...given);
    if (permit.lease.remaining && !this.#isOver && !this.#wait?.isOver) return permit;
    permit.lease.finish();
    return null;
  }

  // A permanent permit begins with an ordinary lease. It is made permanent when the caller knows that it holds the permit.
  async #settled(permit, until) {
    this.#permit = permit;
    if (this.#confirms && this.#settings.lease === 0) await permit.lease.refresh(until);
    return permit;
  }

  async #waitInLine(inbox) {
    const { end, latest } = this.#wait;
    await inbox.ready(Math.min(OPEN_MS, (end - localTime()) / 2));
    let failure;
    try {
      while (localTime() < end) {
        const until = Math.min(latest, localTime() + OUTAGE_MS);
        const reply = await this.#ask(inbox.patience, inbox.address(this.secret), until);
        const permit = this.#granted(reply) ?? (reply.word === 'queued' ? await this.#receive(reply, inbox) : null);
        if (permit) return await this.#settled(permit, Math.min(this.#gate.until(), latest));
        if (this.#wait.isOver) return null;
        if (reply.word !== 'queued') await pause(LOST_PAUSE_MS); // the lease ended before the reply was read
      }
      // The last call takes a grant whose message has not arrived yet, or leaves the line.
      const permit = this.#granted(await this.#ask(0, '', latest));
      if (permit) return await this.#settled(permit, latest);
    } catch (error) {
      if (!(error instanceof UnreachableError) || localTime() < latest) throw error;
      failure = error;
    }
    throw this.#wait.timedOut(this.#settings.key, this.#usage, failure);
  }

  // Sleeps until it is time to ask again. Returns a permit if a message grants it before that.
  async #receive(reply, inbox) {
    const now = localTime();
    let until = Math.min(now + Math.min(reply.retry_after, RECHECK_MS), this.#wait.end);
    let isSilent = true;
    while (localTime() < until && !this.#asksAgain && !this.#wait.isOver) {
      if (!this.#messages.length) await this.#sleep(until);
      for (const message of this.#messages.splice(0)) {
        isSilent = false;
        if (message.now < reply.now) continue; // older than the last reply
        if (message.fence > 0) {
          if (!this.#isNew(message.fence)) continue; // a copy, or of a place that was given up
          const permit = this.#grantedBy(message, reply);
          if (permit) return permit;
          until = 0; // the lease has ended, or the message does not tell enough
        } else if (message.expires_at === -1) {
          throw new RevokedError(`${this.#settings.key}: the wait of ${this.id} was revoked. Ask the operator`);
        } else {
          until = Math.min(until, message.expires_at + message.clock); // a hint: ask again at this time
        }
      }
    }
    if (isSilent) inbox.verify();
    return null;
  }

  // Whether the server gave this fence after the place in line: the ticket is the next fence of that time, lower by the head
  // start (both in µs).
  #isNew(fence) {
    return fence > Math.max(this.#newest, this.#ticket + 1_000 * this.#settings.headStart);
  }

  // A message does not contain the limit in force. The server knows it, and why the number of permits is another one.
  #grantedBy(message, reply) {
    this.#newest = message.fence;
    if (this.#settings.strict || message.permits !== this.#permits) return null;
    // The message may have been delayed: its arrival alone would give a deadline that is too late.
    return this.#granted(message, Math.min(message.clock, reply.clock));
  }

  #sleep(until) {
    return new Promise((resolve) => {
      const end = after(until - localTime(), resolve);
      this.#wake = () => {
        end();
        resolve();
      };
    });
  }
}

/** Throws if the semaphore is strict and declares another limit. */
function checkLimit({ strict, key, limit: declared }, limit) {
  if (strict && limit !== declared) throw new LimitMismatchError(key, declared, limit);
}

module.exports = { LOST_PAUSE_MS, Request, checkLimit };
