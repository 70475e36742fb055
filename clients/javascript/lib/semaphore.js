// A counting semaphore or, with a limit of 1, a lock.
const { InvalidError, MOST, UnexpectedReplyError } = require('./errors.js');
const { releasedAfter } = require('./permits.js');
const { Request } = require('./request.js');
const { checkId, checkInteger, checkNames, checkType, labelOf } = require('./settings.js');
const { given } = require('./ticket.js');
const { WAIT_NAMES } = require('./wait.js');

const PAGE = 1_000; // the most holders and waiters of one reply

class Semaphore {
  constructor(gate, settings) {
    Object.defineProperties(this, { gate: { value: gate }, settings: { value: settings } });
  }

  async tryAcquire(options = {}) {
    checkNames('tryAcquire', options, ['permits']);
    const permits = this.settings.permitsOf(options.permits);
    this.gate.checkOpen();
    return new Request(this.gate, this.settings, permits).tryAcquire();
  }

  async acquire(options = {}) {
    checkNames('acquire', options, ['permits', ...WAIT_NAMES]);
    const permits = this.settings.permitsOf(options.permits);
    return this.gate.wait(options, (wait) => new Request(this.gate, this.settings, permits).acquire(wait));
  }

  async use(options, work) {
    return use(this, options, ['permits', ...WAIT_NAMES], work);
  }

  async resize(limit) {
    checkInteger('limit', limit, 1, MOST);
    if (this.settings.isLock) {
      throw new InvalidError(`resize: got the lock ${this.settings.key}. Accepted: a semaphore`);
    }
    this.gate.checkOpen();
    const check = (reply) => {
      if (reply.word !== 'resized') throw new UnexpectedReplyError('resize', reply);
    };
    const reply = await this.gate.call(this.settings, 'resize', { limit, expected: -1 }, undefined, { check });
    const { old, new: now, in_use } = reply;
    return { old, new: now, inUse: in_use };
  }

  async inspect() {
    this.gate.checkOpen();
    const until = this.gate.until();
    const [holders, waiters] = [[], []];
    let page;
    do {
      const offset = Math.max(holders.length, waiters.length);
      page = await this.gate.call(this.settings, 'inspect', { offset, count: PAGE }, until);
      const { now } = page;
      for (const [id, permits, fence, expiresAt, coolingDown] of page.holders) {
        const remaining = expiresAt === -1 ? null : Math.max(0, expiresAt - now);
        holders.push({ id, label: labelOf(id), permits, fence, remaining, coolingDown: coolingDown === 1 });
      }
      for (const [id, permits, ticket] of page.waiters) {
        waiters.push({ id, label: labelOf(id), permits, ticket: given(ticket) });
      }
    } while (page.holders.length === PAGE || page.waiters.length === PAGE);
    const { limit, pinned, in_use, waiter_count } = page;
    return { limit: limit || null, pinned: pinned === 1, inUse: in_use, waiterCount: waiter_count, holders, waiters };
  }

  async revoke(id) {
    checkId(id);
    this.gate.checkOpen();
    return (await this.gate.call(this.settings, 'release', { id, keep: 0 })).word !== 'gone';
  }
}

/** Acquires permits, runs `work`, and releases them at its end. `from`: a semaphore, or several. */
async function use(from, options, names, work) {
  checkNames('use', options, [...names, 'check']);
  checkType('work', work, 'function');
  const { check = false, ...rest } = options;
  checkType('check', check, 'boolean');
  return releasedAfter(await from.acquire(rest), from.gate, check, work);
}

module.exports = { Semaphore, use };
