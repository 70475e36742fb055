// Held permits: of one semaphore, and of several together.

/** The permit is no longer held: its lease ended, or it was released or revoked. */
export class PermitLostError extends Error {}

/** Held permits: `id`, `permits`, `fence`, `ticket` (0: did not wait), `expiresAt` (server time in ms; -1: never). */
export class Permit {
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

  /** The time until the lease ends. */
  remaining() {
    return Math.max(0, this.#end - performance.now());
  }

  /** Whether the lease has ended, or the permit was released. */
  get isLost() {
    return this.remaining() === 0;
  }

  // Milliseconds until a third of the lease is over.
  get due() {
    return this.remaining() - (this.#semaphore.lease * 2) / 3;
  }

  /** Starts the lease anew. Call it when a third of the lease is over. Throws a `PermitLostError`. */
  async refresh() {
    const args = { id: this.id, lease_ms: this.#semaphore.lease };
    const { word, expires_at, now, clock } = await this.#semaphore.run('refresh', args);
    this.#lasts(word === 'lost' ? now : expires_at, clock);
    if (word === 'lost') {
      const why = `the lease of ${this.id} ended, or its permit was released or revoked`;
      throw new PermitLostError(`${this.#semaphore.name}: ${why}`);
    }
  }

  /** Releases the permits. Returns whether they were still held. */
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

/** Permits of several semaphores: `permits`, in the order of the request. */
export class Permits {
  constructor(permits) {
    this.permits = permits;
  }

  /** The fence of each semaphore. */
  get fences() {
    return this.permits.map((permit) => permit.fence);
  }

  /** The time until the first of the leases ends. */
  remaining() {
    return Math.min(...this.permits.map((permit) => permit.remaining()));
  }

  /** Whether one of the leases has ended, or they were released. */
  get isLost() {
    return this.remaining() === 0;
  }

  /** Starts all leases anew. Throws a `PermitLostError` if one of the permits is lost. */
  async refresh() {
    await allOf(this.permits, (permit) => permit.refresh());
  }

  // Refreshes each permit when a third of its lease is over. Returns the milliseconds until the next one is due.
  async keep() {
    await allOf(
      this.permits.filter((permit) => permit.due <= 0),
      (permit) => permit.refresh(),
    );
    return Math.min(...this.permits.map((permit) => permit.due));
  }

  /** Releases all permits. Returns whether all were still held. */
  async release() {
    const wereHeld = await allOf(this.permits, (permit) => permit.release());
    return wereHeld.every(Boolean);
  }

  /** Releases them at the end of an `await using`. */
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
