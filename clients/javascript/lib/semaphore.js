// A counting semaphore or, with a limit of 1, a lock.
import { releasedAfter } from './permits.js';
import { Request } from './request.js';

export class Semaphore {
  constructor(gate, settings) {
    Object.defineProperties(this, { gate: { value: gate }, settings: { value: settings } });
  }

  async tryAcquire({ permits = 1 } = {}) {
    return new Request(this.gate, this.settings, permits).tryAcquire();
  }

  async acquire({ permits = 1, timeout = Infinity, signal } = {}) {
    const end = performance.now() + timeout;
    const request = new Request(this.gate, this.settings, permits);
    return endedBy(signal, request, () => request.acquire(timeout, end));
  }

  async use(options, work) {
    return releasedAfter(await this.acquire(options), work);
  }
}

/** Runs this wait. If the signal is aborted meanwhile, the wait ends with the signal's reason. */
export async function endedBy(signal, request, wait) {
  signal?.throwIfAborted();
  const abort = () => request.fail(signal.reason);
  signal?.addEventListener('abort', abort);
  try {
    return await wait();
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
