// Runs the commands of the fault suite, one per line: see ../faults/README.md
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import * as luagate from 'luagate';
import { badArguments } from './arguments.mjs';

const { LUAGATE_CLIENT = 'redis' } = process.env; // or `oldest`, `ioredis`, `ioredis-oldest`
const isOldest = LUAGATE_CLIENT.endsWith('oldest');
const redis = await import(isOldest ? 'redis-oldest' : 'redis');
const { default: Redis } = await import(isOldest ? 'ioredis-oldest' : 'ioredis');
const { Luagate } = luagate;

const gates = new Map(); // by name: { gate, client, url, prefix }
const permits = new Map(); // by name
const calls = new Map(); // the calls that run: an AbortController each

class WorkError extends Error {}
const cancelled = new Error('the driver cancelled the call');

function say(line) {
  process.stdout.write(`${line}\n`);
}

function line(word, fields = {}) {
  const texts = Object.entries(fields).map(
    ([key, value]) => ` ${key}=${String(value).split(',').map(encodeURIComponent).join()}`,
  );
  return word + texts.join('');
}

/**
 * A client of the server at this URL; or of its cluster; or of the master `sentinel`, if it is a sentinel: this one is
 * of ioredis always, because luagate refuses that of `redis`.
 */
function clientOf(url, { cluster, sentinel } = {}) {
  const { hostname: host, port, username, password } = new URL(url);
  const login = { ...(username && { username }), ...(password && { password }) };
  const at = { host, port: Number(port) };
  const lazy = { lazyConnect: true };
  let client;
  if (sentinel !== undefined) {
    client = new Redis({ ...lazy, ...login, sentinels: [at], name: sentinel });
  } else if (LUAGATE_CLIENT.startsWith('ioredis')) {
    if (cluster === '1') client = new Redis.Cluster([at], { ...lazy, redisOptions: login });
    else client = new Redis(url, lazy);
  } else {
    if (cluster === '1') client = redis.createCluster({ rootNodes: [{ url }], defaults: login });
    else client = redis.createClient({ url });
  }
  return client.on('error', () => {});
}

/** A command: its first keys, and its wants, each from a `name` up to the next one. */
class Command {
  constructor(number, pairs) {
    this.number = number;
    this.wants = [];
    for (const [key, value] of pairs) {
      if (key === 'name') this.wants.push({});
      for (const into of [this.wants.at(-1), this]) if (into) into[key] = value;
    }
    this.signal = new AbortController();
  }

  get open() {
    return gates.get(this.gate);
  }

  get held() {
    return permits.get(this.permit);
  }

  get timeoutMs() {
    return this.timeout === undefined ? undefined : Number(this.timeout);
  }

  get isSeveral() {
    return this.wants.length > 1 || this.several === '1';
  }

  /** What to acquire from: a semaphore, or several. */
  from() {
    const { gate } = this.open;
    const onLost = this.report === '1' ? { onLost: () => say(`! lost ${this.number}`) } : {};
    const semaphore = (want) => semaphoreOf(gate, want, onLost);
    if (!this.isSeveral) return semaphore(this.wants[0]);
    return gate.several(this.wants.map((want) => [semaphore(want), permitsOf(want)]));
  }

  get options() {
    const permits = this.isSeveral ? {} : { permits: permitsOf(this.wants[0]) };
    return { ...permits, timeout: this.timeoutMs, signal: this.signal.signal };
  }
}

function permitsOf({ permits }) {
  return permits === undefined ? undefined : Number(permits);
}

function semaphoreOf(gate, { name, kind = 'semaphore', limit = 1, lease, label, strict, ...more }, given = {}) {
  const options = { ...given };
  if (lease !== undefined) options.lease = lease === 'permanent' ? lease : parseInt(lease);
  if (lease?.endsWith('+')) options.autoRenew = true;
  if (label !== undefined) options.label = label;
  if (strict !== undefined) options.strict = strict === '1';
  const numbers = { maxWaiting: more.max_waiting, atLeast: more.at_least, headStart: more.head_start };
  for (const [key, value] of Object.entries(numbers)) if (value !== undefined) options[key] = Number(value);
  if (kind === 'mutex') return gate.mutex(name, options);
  if (kind === 'semaphore') return gate.semaphore(name, Number(limit), options);
  return gate.rwlock(name, options)[kind];
}

function granted(held) {
  const all = held.permits.length ? held.permits : [held];
  const list = (field) => all.map((permit) => permit[field]).join();
  return line('granted', { id: all[0].id, fence: list('fence'), permits: list('permits'), limit: list('limit') });
}

const verbs = {
  open({ gate, url, prefix, cluster, sentinel }) {
    const client = clientOf(url, { cluster, sentinel });
    gates.set(gate, { gate: new Luagate(client, prefix === undefined ? {} : { prefix }), client, url, prefix });
    return 'done';
  },

  async acquire(command) {
    const held = await command.from().acquire(command.options);
    permits.set(command.permit, held);
    return granted(held);
  },

  async try(command) {
    const { permits: number } = command.options;
    const held = await command.from().tryAcquire(number === undefined ? {} : { permits: number });
    permits.set(command.permit, held);
    return granted(held);
  },

  async refresh({ held }) {
    await held.refresh();
    return 'refreshed';
  },

  async release({ held }) {
    return line('released', { held: await held.release() });
  },

  state({ held }) {
    if (held.isLost) return 'lost';
    const remaining = held.remaining();
    return line('held', { remaining: remaining === Infinity ? 'never' : Math.floor(remaining) });
  },

  async await_lost({ held, timeoutMs }) {
    const { signal } = held;
    const alarm = new AbortController();
    signal.addEventListener('abort', () => alarm.abort());
    if (!signal.aborted) await sleep(timeoutMs, null, { signal: alarm.signal }).catch(() => {});
    return signal.aborted && signal.reason instanceof luagate.LostError ? 'lost' : 'held';
  },

  async use(command) {
    const options = { ...command.options, check: command.check === '1' };
    const work = async () => {
      say(`! working ${command.number}`);
      await sleep(Number(command.hold ?? 0));
      if (command.work === 'error') throw new WorkError('the work failed');
      return 'work';
    };
    try {
      return line('returned', { value: await command.from().use(options, work) });
    } catch (error) {
      if (error instanceof WorkError) return 'raised';
      throw error;
    }
  },

  async inspect(command) {
    const { limit, inUse, waiterCount, holders, waiters } = await command.from().inspect();
    const ids = (rows) => rows.map(({ id }) => id).join();
    const numbers = { limit: limit ?? 0, in_use: inUse, waiting: waiterCount };
    const labels = holders.map(({ label }) => label ?? '').join();
    return line('state', { ...numbers, holders: ids(holders), waiters: ids(waiters), labels });
  },

  async revoke(command) {
    return (await command.from().revoke(command.id)) ? 'revoked' : 'gone';
  },

  async resize(command) {
    const { old, new: now } = await command.from().resize(Number(command.to));
    return line('resized', { old, new: now });
  },

  cancel(command) {
    calls.get(command.call)?.abort(cancelled);
    return 'done';
  },

  async close({ open }) {
    await open.gate.close();
    return 'done';
  },

  // luagate does not use the client itself, so it is not open yet.
  async close_client({ open: { client } }) {
    await client.connect();
    await (client.destroy ?? client.disconnect).call(client);
    return 'done';
  },

  counters({ open: { gate } }) {
    const { granted, denied, lineFull: line_full, waited, lost, renewed, reconnects } = gate.counters();
    return line('counters', { waited, line_full, granted, denied, lost, renewed, reconnects });
  },

  threads() {
    return line('done', { count: process.getActiveResourcesInfo().length });
  },

  async arguments(command) {
    const { total, wrong } = await badArguments(clientOf(command.url ?? lastUrl()));
    return line('checked', { total, wrong });
  },

  async clients(command) {
    const url = command.url ?? lastUrl();
    const { hostname, port } = new URL(url);
    const sentinelNodes = [{ host: hostname, port: Number(port) }];
    const connected = await redis
      .createClient({ url })
      .on('error', () => {})
      .connect();
    const createPool = () => connected.createPool();
    const kinds = {
      'redis client': redis.createClient({ url }),
      'connected redis client': connected,
      [OTHER_DATABASE]: redis.createClient({ url: `${url}?db=2` }),
      'redis client with types': connected.withTypeMapping({}),
      'redis pool': (redis.createClientPool ?? createPool)({ url }),
      'redis sentinel': redis.createSentinel({ name: 'main', sentinelRootNodes: sentinelNodes }),
      'redis legacy client': connected.legacy(),
      'ioredis client': new Redis(url, { lazyConnect: true }),
      'a URL': url,
      'an object': {},
      null: null,
      undefined: undefined,
    };
    const lists = { works: [], refused: [], wrong: [] };
    for (const [kind, client] of Object.entries(kinds)) {
      const word = await resultOf(client).catch((error) => `${error}`.replaceAll(',', ';'));
      if (word in lists) lists[word].push(kind);
      else lists.wrong.push(`${kind}: ${word}`);
    }
    if (!lists.refused.includes(OTHER_DATABASE)) lists.wrong.push(OTHER_DATABASE);
    connected.destroy();
    return line('checked', lists);
  },
};

function lastUrl() {
  return [...gates.values()].at(-1).url;
}

/** The package ignores this parameter. A client of another language does not. */
const OTHER_DATABASE = 'redis client with db as a parameter';

async function resultOf(client) {
  client?.on?.('error', () => {});
  let gate;
  try {
    gate = new Luagate(client);
  } catch (error) {
    if (error instanceof luagate.InvalidError && error.message.includes('Accepted: ')) return 'refused';
    throw error;
  }
  const permit = await gate.mutex('clients').acquire({ timeout: 5_000 });
  const wasHeld = await permit.release();
  await gate.close();
  return wasHeld ? 'works' : 'not held';
}

const kinds = {
  TimedOutError: 'timed_out',
  DeniedError: 'denied',
  LineFullError: 'full',
  AboveLimitError: 'above_limit',
  LimitMismatchError: 'limit_mismatch',
  LostError: 'lost',
  RevokedError: 'revoked',
  ClosedError: 'closed',
  InvalidError: 'invalid',
  NoPermissionError: 'permission',
  UnreachableError: 'unreachable',
};

function refusal(error) {
  const isServer = ['SimpleError', 'BlobError', 'ReplyError'].includes(error?.constructor?.name);
  const isOwn = error instanceof luagate.LuagateError;
  const kind = error === cancelled ? 'cancelled' : isOwn ? kinds[error.name] : isServer ? 'server' : 'other';
  const fields = { kind, type: error?.constructor?.name };
  if ('inUse' in Object(error)) {
    const { inUse, limit, waiting, nextExpiry } = error;
    Object.assign(fields, { in_use: inUse, limit, waiting, next_expiry: nextExpiry === null ? -1 : nextExpiry });
  } else if (error?.limit !== undefined) {
    fields.limit = error.limit;
  }
  if (kind === 'permission') fields.logged = inspect(error, { depth: Infinity, showHidden: true });
  const stack = kind === 'other' ? ` ${error?.stack}` : '';
  return line('error', { ...fields, message: `${error?.message}${stack}` });
}

async function run(text) {
  const [call, verb, ...words] = text.split(' ');
  const pairs = words.map((word) => {
    const [key, ...value] = word.split('=');
    return [key, decodeURIComponent(value.join('='))];
  });
  const command = new Command(call, pairs);
  calls.set(call, command.signal);
  let answer;
  try {
    answer = await verbs[verb](command);
  } catch (error) {
    answer = refusal(error);
  }
  calls.delete(call);
  say(`${call} ${answer}`);
}

// At the end of the input, a program with calls that still run ends only if it exits.
function end() {
  if (calls.size > 0) process.exit();
}

const input = createInterface({ input: process.stdin });
input.on('line', (text) => {
  const [call, verb] = text.split(' ');
  if (verb !== 'exit') return void run(text);
  say(`${call} done`);
  input.close();
  process.stdin.unref?.();
});
input.on('close', end);
