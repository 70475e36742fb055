// The lease of a permit: its end by this process's clock, and its renewal in the background.
const { LostError } = require('./errors.js');
const { localTime } = require('./node.js');
const { after } = require('./timers.js');

const LOOK_MS = 1_000; // a timer stops while the machine is suspended, and the lease goes on

class Lease {
  #gate;
  #settings;
  #id;
  #end; // by `localTime()`
  #isRenewed;
  #renewAt = Infinity;
  #stopTimer;
  #renewal; // a promise, once a renewal has begun
  #isOver = false; // released, or known to be lost
  #lost = new AbortController();
  #failure; // the last error of a renewal
  #isCounted = false; // whether it counts as lost

  /** `clock`: this process's time at some instant, less the server's time at this instant or later. */
  constructor(gate, settings, id, expiresAt, clock) {
    this.#gate = gate;
    this.#settings = settings;
    this.#id = id;
    this.#isRenewed = settings.isRenewed;
    this.isWatched = settings.isWatched;
    this.#starts(expiresAt, clock);
  }

  /** Milliseconds until the lease ends: never longer than on the server. */
  get remaining() {
    return this.#isOver ? 0 : Math.max(0, this.#end - localTime());
  }

  /** The same for the holder: if none is left, it notices the loss. */
  get remainingForHolder() {
    const { remaining } = this;
    if (!remaining && !this.#isOver) this.count();
    return remaining;
  }

  /** Is aborted when the permit is lost, not when it is released. */
  get signal() {
    this.isWatched = true;
    this.#plan();
    return this.#lost.signal;
  }

  /** The error if the permit is lost. */
  get lostError() {
    const why = `the lease of ${this.#id} ended, or its permit was released or revoked`;
    const text = `${this.#settings.key}: ${why}. Stop the work that it protects`;
    return this.#lost.signal.reason ?? new LostError(text, { cause: this.#failure });
  }

  /** From now on, renews the lease in the background, or not. */
  renew(isRenewed) {
    this.#isRenewed = isRenewed;
    this.#planRenewal();
  }

  /** Ends the renewals, and starts the lease that the holder asked for: the first lease of a permanent permit has an end. */
  async confirm(until) {
    this.renew(false);
    await this.#renewal; // the server must not run it after this call
    await this.refresh(until);
  }

  /** Starts the lease anew. The call is repeated until `until`. */
  async refresh(until, lease_ms = this.#settings.lease) {
    if (this.#isOver) throw this.lostError;
    const args = { id: this.#id, lease_ms };
    const reply = await this.#gate.call(this.#settings, 'refresh', args, until, { isOver: () => this.#isOver });
    if (this.#isOver || reply.word === 'lost') {
      const error = this.lostError;
      this.#lose(error);
      throw error;
    }
    this.#starts(reply.expires_at, reply.clock);
  }

  /** The holder releases the permit. Its signal is not aborted. Returns whether the permit was neither released nor known to be lost. */
  finish() {
    const wasHeld = !this.#isOver;
    this.#isOver = true;
    this.#stopTimer?.();
    return wasHeld;
  }

  /** Counts the loss, once. */
  count() {
    if (!this.#isCounted) this.#gate.counts.lost += 1;
    this.#isCounted = true;
  }

  /** Reports that the permit is lost. */
  announce(error = this.lostError) {
    this.count();
    this.#lost.abort(error);
    this.#gate.warn(error.message, error);
    this.#gate.quietly(() => this.#settings.onLost?.(error));
  }

  #starts(expiresAt, clock) {
    this.expiresAt = expiresAt;
    this.#end = expiresAt === -1 ? Infinity : expiresAt + clock - 1; // less 1 ms for rounding
    this.#planRenewal();
  }

  // Renews it when a third of the time that is left is over.
  #planRenewal() {
    const isPlanned = this.#isRenewed && this.#end < Infinity;
    this.#renewAt = isPlanned ? localTime() + Math.min(this.remaining, this.#settings.firstLease) / 3 : Infinity;
    this.#plan();
  }

  // Sets the timer, if the lease is renewed or its end is watched.
  #plan() {
    this.#stopTimer?.();
    if (!(this.#isRenewed || this.isWatched) || this.#isOver || this.#end === Infinity) return;
    const next = Math.min(this.#renewAt, this.#end) - localTime();
    this.#stopTimer = after(Math.min(next, LOOK_MS), () => this.#work(), true);
  }

  #work() {
    if (!this.remaining) return this.#lose(this.lostError);
    if (localTime() >= this.#renewAt && !this.#gate.isClosed) this.#renewal = this.#sendRefresh();
    this.#plan();
  }

  async #sendRefresh() {
    this.#renewAt = Infinity; // until this renewal has ended
    try {
      await this.refresh(Math.min(this.#end, this.#gate.until()), this.#settings.firstLease);
      this.#gate.counts.renewed += 1;
    } catch (error) {
      if (this.#isOver || this.#gate.isClosed) return;
      this.#failure = error;
      this.#gate.warn(`${this.#settings.key}: the lease of ${this.#id} could not be renewed`, error);
      this.#renewAt = localTime() + Math.min(Math.max(this.#settings.firstLease / 10, 5), 1_000);
      this.#plan();
    }
  }

  #lose(error) {
    if (this.finish()) this.announce(error);
  }
}

module.exports = { Lease };
