// Permits of several semaphores, all or none.
const {
  AboveLimitError,
  DeniedError,
  InvalidError,
  LostError,
  UNKNOWN,
  UnexpectedReplyError,
  UnreachableError,
} = require('./errors.js');
const { localTime } = require('./node.js');
const { allOf, Permit, Permits } = require('./permits.js');
const { checkLimit, LOST_PAUSE_MS, Request } = require('./request.js');
const { Semaphore, use } = require('./semaphore.js');
const { checkNames } = require('./settings.js');
const { pause, within } = require('./timers.js');
const { LAST_CALL_MS, WAIT_NAMES } = require('./wait.js');

const MOST_SEMAPHORES = 64; // the most semaphores that `several` takes

class Several {
  #wants;

  constructor(gate, wants) {
    if (!Array.isArray(wants) || !wants.every((want) => Array.isArray(want) && want[0] instanceof Semaphore)) {
      throw new InvalidError('several: got another value. Accepted: [[semaphore, permits], ...]');
    }
    const keys = wants.map(([semaphore]) => semaphore.settings.key);
    const twice = keys.find((key, i) => keys.indexOf(key) < i);
    if (keys.length < 1 || keys.length > MOST_SEMAPHORES) {
      throw new InvalidError(`several: got ${keys.length} semaphores. Accepted: 1 to ${MOST_SEMAPHORES}`);
    }
    if (twice) {
      const instead = 'Ask for more permits of it instead';
      throw new InvalidError(`several: got ${twice} twice. Accepted: each semaphore once. ${instead}`);
    }
    if (wants.some(([semaphore]) => semaphore.gate !== gate)) {
      throw new InvalidError('several: got a semaphore of another Luagate. Accepted: semaphores of the same Luagate');
    }
    Object.defineProperty(this, 'gate', { value: gate });
    this.#wants = wants.map(([{ settings }, permits]) => ({ settings, permits: settings.permitsOf(permits) }));
  }

  async tryAcquire(options = {}) {
    checkNames('tryAcquire', options, []);
    const tags = new Set(this.#wants.map(({ settings }) => settings.tag));
    if (tags.size > 1) {
      const accepted = 'names with one hash tag, as {x}:a and {x}:b. For other names, call acquire';
      throw new InvalidError(`tryAcquire: got the hash tags ${[...tags].join(', ')}. Accepted: ${accepted}`);
    }
    this.gate.checkOpen();
    const id = this.#wants[0].settings.newId();
    const until = this.gate.until();
    const attempts = {};
    try {
      return await this.#tryAcquire(id, until, attempts);
    } catch (error) {
      const isRefused = error instanceof DeniedError || error instanceof AboveLimitError;
      if (!isRefused || attempts.isUnsure) await this.#atOnce(until, this.#releaseLater(id, attempts));
      throw error;
    }
  }

  #releaseLater(id, attempts) {
    return this.#wants.map(({ settings }) => this.gate.releaseLater(settings, id, attempts));
  }

  // Waits for these releases, but only for a short time: they go on in the background.
  async #atOnce(latest, releases) {
    const ms = Math.min(LAST_CALL_MS, latest - localTime());
    if (ms > 0) await within(ms, Promise.all(releases)).catch(() => {});
  }

  async #tryAcquire(id, until, attempts) {
    const keys = this.#wants.flatMap(({ settings }) => settings.keys);
    const terms = ({ settings, permits }) => [permits, settings.limit, settings.firstLease, settings.atLeast];
    const argv = [id, ...this.#wants.flatMap(terms)];
    do {
      const check = (reply) => this.#check(reply);
      const reply = await this.gate.run('try_acquire_several', keys, argv, until, { attempts, check });
      attempts.isUnsure ||= reply.still_held > 0; // granted by an earlier run of this call, whose reply was lost
      this.#refuse(reply);
      this.#wants.forEach(({ settings }, i) => checkLimit(settings, reply.permits[i][4]));
      const permits = this.#wants.map(({ settings }, i) => {
        const [permits, fence, expires_at, , limit] = reply.permits[i];
        const grant = { permits, fence, expires_at };
        return new Permit(this.gate, settings, id, 0, limit, grant, reply.clock, attempts);
      });
      const held = new Permits(this.gate, permits);
      if (permits.every(({ lease }) => lease.remaining)) {
        await this.#makePermanent(permits, until);
        this.gate.counts.granted += permits.length;
        return held;
      }
      permits.forEach((permit) => permit.lease.finish());
      await pause(LOST_PAUSE_MS);
    } while (localTime() < until); // a lease ended before the reply was read
    throw new UnreachableError('several: the replies take longer than the lease. Use a longer lease');
  }

  async #makePermanent(permits, until) {
    try {
      await allOf(
        permits.filter((_, i) => this.#wants[i].settings.lease === 0),
        (permit) => permit.lease.refresh(until),
      );
    } catch (error) {
      permits.forEach((permit) => permit.lease.finish());
      throw error;
    }
  }

  // Throws unless there is a row for each semaphore.
  #check(reply) {
    const { length } = this.#wants;
    const { index = 1, permits, usages = permits } = reply;
    if ((usages && usages.length !== length) || index < 1 || index > length) {
      throw new UnexpectedReplyError('try_acquire_several', reply);
    }
  }

  // Throws if the reply grants nothing.
  #refuse({ word, index, next_expiry, limit, usages }) {
    if (word === 'above_limit') {
      const { settings, permits } = this.#wants[index - 1];
      throw new AboveLimitError(settings.key, permits, limit);
    }
    if (word === 'denied') {
      this.#wants.forEach(({ settings }, i) => checkLimit(settings, usages[i][1]));
      const [in_use, limit, waiting] = usages[index - 1];
      this.gate.counts.denied += 1;
      throw new DeniedError(this.#wants[index - 1].settings.key, { in_use, limit, waiting, next_expiry });
    }
  }

  async acquire(options = {}) {
    checkNames('acquire', options, WAIT_NAMES);
    return this.gate.wait(options, (wait) => this.#acquire(wait));
  }

  async #acquire(wait) {
    const byBytes = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
    const inOrder = this.#wants.toSorted(
      ({ settings: a }, { settings: b }) => a.limit - b.limit || byBytes(a.key, b.key),
    );
    const granted = new Map(); // by settings
    try {
      for (const { settings, permits } of inOrder) {
        const permit = await new Request(this.gate, settings, permits).acquire(wait, false);
        granted.set(settings, permit);
        permit.lease.renew(true);
        const lost = () => wait.fail(new LostError(`several: the lease of ${settings.key} ended during the wait`));
        permit.signal.addEventListener('abort', lost);
        if (permit.isLost) lost();
      }
      const held = [...granted.values()];
      await this.#confirm(wait, [...granted]);
      if (held.some((permit) => permit.isLost)) {
        throw new LostError('several: a lease ended before all permits were granted');
      }
    } catch (error) {
      await this.#atOnce(
        wait.latest,
        [...granted.values()].map((permit) => permit.releaseLater()),
      );
      throw error;
    }
    granted.forEach((permit, settings) => permit.lease.renew(settings.isRenewed));
    return new Permits(
      this.gate,
      this.#wants.map(({ settings }) => granted.get(settings)),
    );
  }

  // Checks that the permits are still held, and gives each the lease that was asked for. The last one has it already, unless
  // that is permanent: a program that ends during the wait leaves nothing held for ever.
  async #confirm(wait, granted) {
    const until = Math.min(this.gate.until(), wait.latest);
    const needs = ([settings], i) => i < granted.length - 1 || settings.lease === 0;
    try {
      await wait.race(allOf(granted.filter(needs), ([, permit]) => permit.lease.confirm(until)));
    } catch (error) {
      if (!(error instanceof UnreachableError) || localTime() < wait.latest) throw error;
      throw wait.timedOut('several', UNKNOWN, error);
    }
  }

  async use(options, work) {
    return use(this, options, WAIT_NAMES, work);
  }
}

module.exports = { Several };
