// Permits of several semaphores, all or none.
import { randomUUID } from 'node:crypto';
import { PermitLostError } from './errors.js';
import { allOf, Permit, Permits, releasedAfter } from './permits.js';
import { aboveLimit, Request } from './request.js';
import { callOnce, untilReplied } from './scripts.js';
import { endedBy } from './semaphore.js';
import { checkInteger } from './settings.js';

const MOST_SEMAPHORES = 64; // the most semaphores that `several` takes

export class Several {
  #gate;
  #wants;

  constructor(gate, wants) {
    const keys = wants.map(([semaphore]) => semaphore.settings.key);
    const twice = keys.find((key, i) => keys.indexOf(key) < i);
    if (keys.length < 1 || keys.length > MOST_SEMAPHORES) {
      throw new RangeError(`several: got ${keys.length} semaphores. Accepted: 1 to ${MOST_SEMAPHORES}`);
    }
    if (twice) {
      const instead = 'Ask for more permits of it instead';
      throw new RangeError(`several: got ${twice} twice. Accepted: each semaphore once. ${instead}`);
    }
    if (wants.some(([semaphore]) => semaphore.gate !== gate)) {
      throw new RangeError('several: got a semaphore of another Luagate. Accepted: semaphores of the same Luagate');
    }
    wants.forEach(([, permits]) => checkInteger('permits', permits, 1));
    this.#gate = gate;
    this.#wants = wants.map(([{ settings }, permits]) => ({ settings, permits }));
  }

  async tryAcquire() {
    const tags = new Set(this.#wants.map(({ settings }) => settings.tag));
    if (tags.size > 1) {
      const accepted = 'names with one hash tag, as {x}:a and {x}:b. For other names, call acquire';
      throw new RangeError(`tryAcquire: got the hash tags ${[...tags].join(', ')}. Accepted: ${accepted}`);
    }
    const id = randomUUID();
    try {
      return await this.#tryAcquire(id);
    } catch (error) {
      await this.#abandon(id);
      throw error;
    }
  }

  async #abandon(id) {
    await Promise.all(this.#wants.map(({ settings, permits }) => new Request(this.#gate, settings, permits, id).abandon()));
  }

  async #tryAcquire(id) {
    const { redis, scripts } = this.#gate;
    const keys = this.#wants.flatMap(({ settings }) => settings.keys);
    const terms = ({ settings, permits }) => [permits, settings.limit, settings.lease, settings.atLeast];
    const argv = [id, ...this.#wants.flatMap(terms)];
    const script = scripts['semaphore/try_acquire_several'];
    const reply = await untilReplied(() => callOnce(redis, script, keys, argv));
    if (reply.word === 'denied') {
      if (reply.still_held > 0) await this.#abandon(id); // by an earlier run of this call, whose reply was lost
      return null;
    }
    if (reply.word === 'above_limit') {
      const { settings, permits } = this.#wants[reply.index - 1];
      throw aboveLimit(settings.key, permits, reply.limit);
    }
    const permits = this.#wants.map(({ settings }, i) => {
      const [permits, fence, expires_at] = reply.permits[i];
      return new Permit(this.#gate, settings, id, 0, { permits, fence, expires_at }, reply.clock);
    });
    return new Permits(permits);
  }

  async acquire({ timeout = Infinity, signal } = {}) {
    const end = performance.now() + timeout;
    const byBytes = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
    const inOrder = this.#wants.toSorted(
      ({ settings: a }, { settings: b }) => a.limit - b.limit || byBytes(a.key, b.key),
    );
    const granted = new Map(); // by settings
    let waits; // the current request
    try {
      for (const { settings, permits } of inOrder) {
        const request = (waits = new Request(this.#gate, settings, permits));
        const permit = await endedBy(signal, request, () => request.acquire(timeout, end));
        granted.set(settings, permit);
        permit.lease.renew(true);
        const why = `several: the lease of ${settings.key} ended during the wait`;
        permit.signal.addEventListener('abort', () => waits.fail(new PermitLostError(why)));
        if (permit.isLost) throw new PermitLostError(why);
      }
      const held = [...granted.values()];
      await allOf(held.slice(0, -1), (permit) => permit.refresh());
      if (held.some((permit) => permit.isLost)) {
        throw new PermitLostError('several: a lease ended before all permits were granted');
      }
    } catch (error) {
      await allOf([...granted.values()], (permit) => permit.release()).catch(() => {});
      throw error;
    }
    granted.forEach((permit, settings) => permit.lease.renew(settings.isRenewed));
    return new Permits(this.#wants.map(({ settings }) => granted.get(settings)));
  }

  async use(options, work) {
    return releasedAfter(await this.acquire(options), work);
  }
}
