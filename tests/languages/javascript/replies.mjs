// Calls luagate with random replies of the server. Each call resolves, or rejects with an error of luagate.
import fc from 'fast-check';
import { EventEmitter } from 'node:events';
import { Luagate, LuagateError, UnexpectedReplyError } from 'luagate';
import { callOnce, loadScripts } from 'luagate/scripts';

const scripts = loadScripts();
const words = [...new Set(Object.values(scripts).flatMap(({ replies }) => Object.keys(replies)))];
const NOW = 1_795_205_203_248;

/** A client of `ioredis` whose calls have these replies, and then always the last one. It hears no messages. */
class Forger extends EventEmitter {
  stream = { unref() {} };

  constructor(replies) {
    super();
    this.replies = replies;
  }

  duplicate() {
    return Object.assign(new Forger(), { replies: this.replies });
  }

  async connect() {}

  async call(command) {
    if (command === 'PUBSUB') return ['', 0];
    return this.replies.length > 1 ? this.replies.shift() : this.replies[0];
  }

  async subscribe() {}

  disconnect() {}
}

const known = [NOW, NOW + 1, NOW + 30_000, NOW * 1_000, 2 ** 31 - 1, 2 ** 31, 2 ** 53, 1e300, -1e300];
const number = fc.oneof(fc.integer({ min: -1, max: 3 }), fc.constantFrom(...known));
const other = fc.oneof(
  fc.constantFrom(null, undefined, true, 0.5, NaN, 1n, new Error('ERR'), {}),
  fc.string({ maxLength: 3 }),
);
const cell = fc.oneof(number, number, fc.constant('a/b'), other);
const rows = fc.array(fc.array(cell, { maxLength: 6 }), { maxLength: 4 });
const field = fc.oneof(number, number, number, rows, other);
const word = fc.constantFrom(...words, '__proto__', 'constructor');
const grants = fc.array(fc.array(number, { minLength: 5, maxLength: 5 }), { maxLength: 3 });
const forged = fc.oneof(
  field,
  fc.array(field, { maxLength: 10 }),
  fc.tuple(word, fc.array(number, { maxLength: 7 })).map(([first, rest]) => [first, ...rest]),
  fc.tuple(word, fc.array(field, { maxLength: 7 })).map(([first, rest]) => [first, ...rest]),
  fc
    .tuple(fc.array(number, { minLength: 7, maxLength: 7 }), rows, rows)
    .map(([counts, ...lists]) => [...counts, ...lists]),
  fc.tuple(number, grants).map(([now, permits]) => ['granted', now, permits]),
);

const granted = ['granted', 1, 1, NOW + 60_000, NOW, 1, 5];

/** Runs a call with a permit, which is granted before the forged replies. */
const held = (call) => async (gate) => call(await gate.semaphore('one', 5).tryAcquire({ permits: 2 }));
const calls = {
  tryAcquire: (gate) => gate.semaphore('one', 5).tryAcquire(),
  acquire: (gate) => gate.semaphore('one', 5, { strict: true }).acquire({ timeout: 20 }),
  refresh: held((permit) => permit.refresh()),
  release: held((permit) => permit.release()),
  downgrade: held((permit) => permit.downgrade()),
  use: (gate) => gate.semaphore('one', 5).use({ timeout: 20, check: true }, () => 1),
  revoke: (gate) => gate.semaphore('one', 5).revoke('id'),
  resize: async (gate) => {
    const { old, new: now, inUse } = await gate.semaphore('one', 5).resize(7);
    if ([old, now, inUse].includes(undefined)) throw new TypeError('a field is missing');
  },
  inspect: (gate) => gate.semaphore('one', 5).inspect(),
  trySeveral: async (gate) => {
    const { permits } = await gate.several(severalOf(gate)).tryAcquire();
    if (permits.length !== 2) throw new TypeError(`${permits.length} permits`);
  },
  several: (gate) => gate.several(severalOf(gate)).acquire({ timeout: 20 }),
};
const severalOf = (gate) => [[gate.semaphore('{g}:one', 5)], [gate.semaphore('{g}:other', 5)]];
const needsGrant = ['refresh', 'release', 'downgrade'];

async function endsWell(name, replies) {
  const all = needsGrant.includes(name) ? [granted, ...replies] : [...replies];
  const gate = new Luagate(new Forger(all), { callTimeout: 20 });
  try {
    await calls[name](gate);
  } catch (error) {
    if (!(error instanceof LuagateError)) throw error;
  } finally {
    await gate.close();
  }
}

async function isReadOrRefused(name, reply) {
  try {
    await callOnce({ sendCommand: async () => reply }, scripts[name], [], []);
  } catch (error) {
    if (!(error instanceof UnexpectedReplyError)) throw error;
  }
}

const usage = [1, 1, 1];
const examples = [
  ['trySeveral', [['denied', 0, 1, NOW, [usage, usage], 0]]],
  ['trySeveral', [['denied', 3, 1, NOW, [usage, usage], 0]]],
  ['trySeveral', [['denied', 1, 1, NOW, [usage], 0]]],
  ['trySeveral', [['granted', NOW, [[1, 1, NOW + 9_999, 1, 1]]]]],
  ['trySeveral', [['above_limit', 9, 1, NOW, 0]]],
  ['resize', [['unchanged', 1, 1]]],
];
const seeded = { seed: 1 };
const cases = Number(process.env.LUAGATE_CASES ?? 500);
const one = fc.asyncProperty(fc.constantFrom(...Object.keys(scripts)), forged, isReadOrRefused);
await fc.assert(one, { ...seeded, numRuns: 3 * cases });
const names = fc.constantFrom(...Object.keys(calls));
const all = fc.asyncProperty(names, fc.array(forged, { minLength: 1, maxLength: 3 }), endsWell);
await fc.assert(all, { ...seeded, numRuns: cases, examples });
