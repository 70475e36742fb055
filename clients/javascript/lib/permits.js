// Held permits: of one semaphore, and of several together.
import { Lease } from './lease.js';

/** A permit that the program no longer references is no longer renewed. */
const unreferenced = new FinalizationRegistry((lease) => lease.renew(false));

/** A held permit: `id`, `permits`, `fence`, and `ticket` (0: it did not wait in line). */
export class Permit {
  #gate;
  #settings;

  constructor(gate, settings, id, ticket, { permits, fence, expires_at }, clock) {
    Object.assign(this, { id, permits, fence, ticket });
    this.#gate = gate;
    this.#settings = settings;
    const lease = new Lease(gate, settings, id, expires_at, clock);
    Object.defineProperty(this, 'lease', { value: lease }); // not enumerable: for this package only
    unreferenced.register(this, lease);
  }

  get expiresAt() {
    return this.lease.expiresAt;
  }

  remaining() {
    return this.lease.remaining;
  }

  get isLost() {
    return this.lease.remaining === 0;
  }

  get signal() {
    return this.lease.signal;
  }

  async refresh() {
    const args = { id: this.id, lease_ms: this.#settings.lease };
    this.lease.refreshed(await this.#gate.callFor(this.#settings, 'refresh', args));
  }

  async release() {
    this.lease.finish();
    const { word } = await this.#gate.callFor(this.#settings, 'release', { id: this.id, keep: 0 });
    return word === 'released';
  }

  [Symbol.asyncDispose]() {
    return this.release();
  }
}

/** Permits of several semaphores: `permits`, in the order of the request. */
export class Permits {
  constructor(permits) {
    this.permits = permits;
  }

  get fences() {
    return this.permits.map((permit) => permit.fence);
  }

  remaining() {
    return Math.min(...this.permits.map((permit) => permit.remaining()));
  }

  get isLost() {
    return this.remaining() === 0;
  }

  get signal() {
    return AbortSignal.any(this.permits.map((permit) => permit.signal));
  }

  async refresh() {
    await allOf(this.permits, (permit) => permit.refresh());
  }

  async release() {
    const wereHeld = await allOf(this.permits, (permit) => permit.release());
    return wereHeld.every(Boolean);
  }

  [Symbol.asyncDispose]() {
    return this.release();
  }
}

/** Calls this for each permit. Waits for all calls, and then throws the first error. */
export async function allOf(permits, call) {
  const results = await Promise.allSettled(permits.map(call));
  const failed = results.find(({ status }) => status === 'rejected');
  if (failed) throw failed.reason;
  return results.map(({ value }) => value);
}

/** Runs `work(held)`, and then releases `held`. */
export async function releasedAfter(held, work) {
  try {
    return await work(held);
  } finally {
    await held.release();
  }
}
