// The lease of a permit: its end by this process's clock, and its renewal in the background.
import { PermitLostError } from './errors.js';
import { callOnce, MOST_TIMER_MS, replyOf } from './scripts.js';

export class Lease {
  #gate;
  #settings;
  #id;
  #end; // by `performance.now()`
  #isRenewed;
  #renewAt = Infinity;
  #timer;
  #isOver = false; // released, or known to be lost
  #lost = new AbortController();
  #failure; // the last error of a renewal

  /** `clock`: this process's time at some instant, less the server's time at this instant or later. */
  constructor(gate, settings, id, expiresAt, clock) {
    this.#gate = gate;
    this.#settings = settings;
    this.#id = id;
    this.#isRenewed = settings.isRenewed;
    this.#starts(expiresAt, clock);
  }

  /** Milliseconds until the lease ends: never longer than on the server. */
  get remaining() {
    return this.#isOver ? 0 : Math.max(0, this.#end - performance.now());
  }

  /** Is aborted when the permit is lost, not when it is released. */
  get signal() {
    this.#plan(true);
    return this.#lost.signal;
  }

  /** From now on, renews the lease in the background, or not. */
  renew(isRenewed) {
    this.#isRenewed = isRenewed;
    this.#planRenewal();
  }

  /** Takes the reply to a refresh. */
  refreshed(reply) {
    if (reply.word === 'lost') {
      const why = `the lease of ${this.#id} ended, or its permit was released or revoked`;
      const error = new PermitLostError(`${this.#settings.key}: ${why}`);
      this.#lose(error);
      throw error;
    }
    this.#starts(reply.expires_at, reply.clock);
  }

  /** The holder releases the permit. Its signal is not aborted. */
  finish() {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #starts(expiresAt, clock) {
    this.expiresAt = expiresAt;
    this.#end = expiresAt === -1 ? Infinity : expiresAt + clock - 1; // less 1 ms for rounding
    this.#planRenewal();
  }

  // Renews it when a third of the time that is left is over.
  #planRenewal() {
    const isPlanned = this.#isRenewed && this.#end < Infinity;
    this.#renewAt = isPlanned ? performance.now() + Math.min(this.remaining, this.#settings.lease) / 3 : Infinity;
    this.#plan(this.#isRenewed || this.#timer !== undefined);
  }

  // Sets the timer, if the lease is renewed or its end is watched.
  #plan(isNeeded) {
    clearTimeout(this.#timer);
    if (!isNeeded || this.#isOver || this.#end === Infinity) return;
    const pause = Math.max(0, Math.min(this.#renewAt, this.#end) - performance.now());
    this.#timer = setTimeout(() => this.#work(), Math.min(Math.ceil(pause), MOST_TIMER_MS)).unref();
  }

  #work() {
    if (!this.remaining) {
      this.#lose(new PermitLostError(`${this.#settings.key}: the lease of ${this.#id} ended`, { cause: this.#failure }));
      return;
    }
    if (performance.now() >= this.#renewAt && !this.#gate.isClosed) this.#sendRefresh();
    this.#plan(true);
  }

  // Without retries, so that no renewal follows a release.
  async #sendRefresh() {
    this.#renewAt = Infinity; // until this renewal has ended
    const { lease, keys } = this.#settings;
    const { redis, scripts } = this.#gate;
    try {
      const reply = await replyOf(() => callOnce(redis, scripts['semaphore/refresh'], keys, [this.#id, lease]));
      if (!this.#isOver) this.refreshed(reply);
    } catch (error) {
      this.#failure = error;
      this.#renewAt = performance.now() + Math.min(Math.max(lease / 10, 5), 1_000);
      this.#plan(true);
    }
  }

  #lose(error) {
    if (this.#isOver) return;
    this.finish();
    this.#lost.abort(error);
  }
}
