// Held permits: of one semaphore, and of several together.
const { InvalidError, LostError } = require('./errors.js');
const { Lease } = require('./lease.js');
const { setImmediate } = require('./node.js');
const { given } = require('./ticket.js');

/** A permit that the program no longer references is no longer renewed. */
const unreferenced = new FinalizationRegistry((lease) => lease.renew(false));

/** A held permit: `id`, `permits`, `fence`, `limit`, and `ticket` (`null`: it did not wait in line). */
class Permit {
  #gate;
  #settings;
  #attempts;
  #hasEnded = false; // whether the server has confirmed the release

  /** `attempts.isUnsure`: a call that acquires it was not answered, and may reach the server after the release. */
  constructor(gate, settings, id, ticket, limit, { permits, fence, expires_at }, clock, attempts) {
    Object.assign(this, { id, permits, fence, ticket: ticket ? given(ticket) : null, limit });
    this.#gate = gate;
    this.#settings = settings;
    this.#attempts = attempts;
    const lease = new Lease(gate, settings, id, expires_at, clock);
    // For this package only, so not enumerable. `isReleased`: the holder has released it, or it is being released.
    Object.defineProperties(this, { lease: { value: lease }, isReleased: { value: false, writable: true } });
    unreferenced.register(this, lease);
  }

  get expiresAt() {
    return this.lease.expiresAt;
  }

  remaining() {
    return this.lease.remainingForHolder;
  }

  get isLost() {
    return this.lease.remainingForHolder === 0;
  }

  get signal() {
    return this.lease.signal;
  }

  async refresh() {
    this.#gate.checkOpen();
    await this.lease.refresh(this.#gate.until());
  }

  async release() {
    this.#gate.checkOpen();
    if (this.#hasEnded) return false;
    const wasHeld = this.lease.finish();
    this.isReleased = true;
    const attempts = {};
    try {
      const args = { id: this.id, keep: 0 };
      const { word } = await this.#gate.call(this.#settings, 'release', args, undefined, { attempts });
      this.#ended();
      const isReleased = word === 'released' || (wasHeld && attempts.isUnsure); // by the copy whose reply was lost
      if (wasHeld && !isReleased) this.lease.count();
      return isReleased;
    } catch (error) {
      this.releaseLater();
      throw error;
    }
  }

  /** Sends the release before it returns, if it can, and does not wait. If the reply says that the permit was lost, reports this. */
  async post() {
    this.#gate.checkOpen();
    const wasHeld = this.lease.finish();
    this.isReleased = true;
    const attempts = {};
    try {
      const { word } = await this.#gate.post(this.#settings, this.id, attempts);
      this.#ended();
      if (word === 'gone' && wasHeld && !attempts.isUnsure) this.lease.announce();
    } catch (error) {
      this.releaseLater();
      throw error;
    }
  }

  /** Releases it in the background. */
  releaseLater() {
    this.lease.finish();
    this.isReleased = true;
    return this.#gate.releaseLater(this.#settings, this.id, this.#attempts);
  }

  #ended() {
    this.#hasEnded = true;
    if (this.#attempts.isUnsure) this.#gate.releaseAgain(this.#settings, this.id);
  }

  async downgrade() {
    this.#gate.checkOpen();
    if (this.permits === 1) {
      throw new InvalidError(`downgrade: ${this.id} has 1 permit. Accepted: a writer, or a holder of several permits`);
    }
    const { word } = await this.#gate.call(this.#settings, 'release', { id: this.id, keep: 1 });
    if (word !== 'released') throw new LostError(`${this.#settings.key}: the permit of ${this.id} is no longer held`);
    this.permits = 1;
  }

  [Symbol.asyncDispose]() {
    return endOf(this, this.#gate);
  }
}

/** Permits of several semaphores: `permits`, in the order of the request. */
class Permits {
  #gate;
  #signal;

  constructor(gate, permits) {
    this.#gate = gate;
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
    return (this.#signal ??= AbortSignal.any(this.permits.map((permit) => permit.signal)));
  }

  get isReleased() {
    return this.permits.every((permit) => permit.isReleased);
  }

  async post() {
    await allOf(this.permits, (permit) => permit.post());
  }

  releaseLater() {
    this.permits.forEach((permit) => permit.releaseLater());
  }

  get lease() {
    return (this.permits.find((permit) => permit.isLost) ?? this.permits[0]).lease;
  }

  async refresh() {
    await allOf(this.permits, (permit) => permit.refresh());
  }

  async release() {
    const wereHeld = await allOf(this.permits, (permit) => permit.release());
    return wereHeld.every(Boolean);
  }

  [Symbol.asyncDispose]() {
    return endOf(this, this.#gate);
  }
}

/** Calls this for each permit. Waits for all calls, and then throws the first error. */
async function allOf(permits, call) {
  const results = await Promise.allSettled(permits.map(call));
  const failed = results.find(({ status }) => status === 'rejected');
  if (failed) throw failed.reason;
  return results.map(({ value }) => value);
}

/** Runs `work(held)`, and then releases `held`. With `check` it rejects if the permits were lost before the end. */
async function releasedAfter(held, gate, check, work) {
  let result;
  try {
    result = await work(held);
  } catch (error) {
    await endOf(held, gate);
    throw error;
  }
  const loss = check ? await lossOf(held) : null;
  await endOf(held, gate, check);
  if (loss) throw loss;
  return result;
}

// The error if a permit was lost. Only the server knows whether it was revoked.
async function lossOf(held) {
  if (held.isReleased) return null;
  try {
    await held.refresh();
    return null;
  } catch (error) {
    const loss = error instanceof LostError ? error : held.isLost ? held.lease.lostError : null;
    held.releaseLater(); // the server may not answer, so nobody waits for this
    return loss;
  }
}

// The end of a block. Waits for the reply to the release only if it should. A failed release does not replace the result or the
// error of the work.
async function endOf(held, gate, waits = false) {
  if (held.isReleased) return;
  const failed = (error) => gate.warn('the release at the end of a block failed. It goes on in the background', error);
  const released = (waits ? held.release() : held.post()).catch(failed);
  if (waits) await released;
  else await new Promise((resolve) => setImmediate(resolve)); // by then, the package `redis` has written it to the socket
}

module.exports = { Permit, Permits, allOf, releasedAfter };
