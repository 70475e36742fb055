// Semaphores and mutexes on one server.
import { Inbox } from './inbox.js';
import { argvOf, callOnce, loadScripts, untilReplied } from './scripts.js';
import { Semaphore } from './semaphore.js';
import { checkPrefix, Settings } from './settings.js';
import { Several } from './several.js';

export class Luagate {
  #prefix;
  #inbox; // a promise

  constructor(redis, { prefix = 'luagate', scripts } = {}) {
    checkPrefix(prefix);
    if (typeof redis?.withTypeMapping !== 'function') {
      throw new TypeError('redis: got another value. Accepted: a client that `createClient` of the package redis returned');
    }
    this.#prefix = prefix;
    const values = { redis: redis.withTypeMapping({}), scripts: loadScripts(scripts) };
    Object.entries(values).forEach(([name, value]) => Object.defineProperty(this, name, { value }));
    this.isClosed = false;
  }

  semaphore(name, limit, options) {
    return new Semaphore(this, new Settings(this.#prefix, 'semaphore', name, limit, options));
  }

  mutex(name, options) {
    return new Semaphore(this, new Settings(this.#prefix, 'mutex', name, 1, options));
  }

  several(wants) {
    return new Several(this, wants);
  }

  close() {
    this.isClosed = true;
    this.#inbox?.then((inbox) => inbox.close()).catch(() => {});
    this.#inbox = undefined;
  }

  // The inbox, subscribed. After a failure the next wait opens it again.
  inbox() {
    const opening = (this.#inbox ??= new Inbox(this.redis, this.#prefix).open());
    opening.catch(() => {
      if (this.#inbox === opening) this.#inbox = undefined;
    });
    return opening;
  }

  // Calls a script of a semaphore with arguments by name, until it replies: a call with the same id has the same outcome.
  callFor({ keys }, name, args, retries) {
    const script = this.scripts[`semaphore/${name}`];
    return untilReplied(() => callOnce(this.redis, script, keys, argvOf(script, args)), retries);
  }
}
