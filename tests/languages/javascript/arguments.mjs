// Calls the client with invalid arguments of every kind.
import { readFileSync } from 'node:fs';
import { InvalidError, Luagate, nameFrom, Ticket } from 'luagate';

const NEVER = [
  -1,
  -0.5,
  0.0004,
  1.5,
  NaN,
  Infinity,
  -Infinity,
  true,
  false,
  null,
  '5',
  'many',
  '',
  [],
  {},
  5n,
  Symbol('5'),
  2 ** 53,
];
const but = (...fine) => NEVER.filter((value) => !fine.includes(value));
const TEXTS = ['', ' ', 'a b', 'a\nb', 'x'.repeat(201), 'x'.repeat(10_000), '\ud800', 5, true, null, {}, [], NaN];

/** Each argument: its values that are invalid, and the call that gets one. */
function calls(client) {
  const gate = new Luagate(client, { prefix: 'luagate:arguments' });
  const semaphore = gate.semaphore('x', 5);
  const setting = (name, values) => [name, values, (value) => gate.semaphore('x', 5, { [name]: value })];
  return [
    ['prefix', [...TEXTS, 'x'.repeat(65), 'a{b}'], (value) => new Luagate(client, { prefix: value })],
    ['callTimeout', [...NEVER, 0], (value) => new Luagate(client, { callTimeout: value })],
    ['gate label', TEXTS, (value) => new Luagate(client, { label: value })],
    ['scripts', [5, true, null, {}], (value) => new Luagate(client, { scripts: value })],
    ['onWarning', [5, 'log', null, {}], (value) => new Luagate(client, { onWarning: value })],
    ['gate options', [5, 'x', null, { prefixes: 'x' }], (value) => new Luagate(client, value)],
    ['name', [...TEXTS, undefined, 'a{b', '{}:a', '{a}'], (value) => gate.semaphore(value, 5)],
    ['mutex name', [...TEXTS, undefined], (value) => gate.mutex(value)],
    ['rwlock name', [...TEXTS, undefined], (value) => gate.rwlock(value)],
    ['ticket', [...TEXTS, undefined, 17, 17n, '0', '017', '-1', '1'.repeat(17)], (value) => new Ticket(value)],
    ['nameFrom', ['\ud800', 5, true, null, undefined, {}], (value) => nameFrom(value)],
    ['limit', [...NEVER, 0, undefined, 2 ** 31], (value) => gate.semaphore('x', value)],
    setting('lease', [...NEVER, 0, 3_155_760_000_001, 'forever']),
    setting('maxWaiting', [...NEVER, 2 ** 31]),
    setting('atLeast', [...NEVER, 3_155_760_000_001]),
    setting('headStart', [...NEVER, 86_400_001]),
    setting('label', [...TEXTS, 'x'.repeat(164)]),
    setting('autoRenew', [0, 1, 'yes', null, {}]),
    setting('strict', [0, 1, 'yes', null, {}]),
    setting('onLost', [0, 'log', null, {}]),
    ['options', [5, 'x', null, { leases: 5 }], (value) => gate.semaphore('x', 5, value)],
    ['permits', [...NEVER, 0, 2 ** 31], (value) => semaphore.acquire({ permits: value })],
    ['tryAcquire permits', [...NEVER, 0, 2 ** 31], (value) => semaphore.tryAcquire({ permits: value })],
    ['reader permits', [...NEVER, 0, 2], (value) => gate.rwlock('x').read.tryAcquire({ permits: value })],
    ['timeout', but(1.5, 2 ** 53).concat(3_155_760_000_001, 0.5), (value) => semaphore.acquire({ timeout: value })],
    ['several timeout', but(1.5, 2 ** 53), (value) => gate.several([[semaphore, 1]]).acquire({ timeout: value })],
    ['signal', [5, true, null, {}, 'x'], (value) => semaphore.acquire({ signal: value })],
    ['acquire options', [5, null, 'x', { timeouts: 5 }], (value) => semaphore.acquire(value)],
    ['use check', [0, 1, null, 'yes'], (value) => semaphore.use({ check: value }, () => {})],
    ['use work', [5, null, undefined, 'x'], (value) => semaphore.use({}, value)],
    ['resize', [...NEVER, 0, undefined, 2 ** 31], (value) => semaphore.resize(value)],
    ['revoke', [...TEXTS, undefined], (value) => semaphore.revoke(value)],
    ['several', [5, null, undefined, [], [5], [[5, 1]], [semaphore]], (value) => gate.several(value)],
    ['several permits', [...NEVER, 0], (value) => gate.several([[semaphore, value]])],
  ];
}

const isHelpful = ({ message }) => message.includes(' Accepted: ') && message.length < 400;

/** Calls all. Returns how many, and those that did not end with an InvalidError that is short and says what is accepted. */
export async function badArguments(client) {
  let total = 0;
  const wrong = [];
  for (const [name, values, call] of calls(client)) {
    for (const value of values) {
      total += 1;
      const error = await (async () => call(value))().then(
        () => undefined,
        (thrown) => thrown,
      );
      if (!(error instanceof InvalidError && isHelpful(error)))
        wrong.push(
          `${name} ${typeof value} ${JSON.stringify(String(value?.toString?.()).slice(0, 20))} ${String(error).slice(0, 300)}`.replaceAll(',', ';'),
        );
    }
  }
  const names = JSON.parse(readFileSync(new URL('../../../lua/names.json', import.meta.url), 'utf8'));
  const others = names.filter(({ text, name }) => nameFrom(text) !== name); // than in other languages
  return { total, wrong: wrong.concat(others.map(({ text }) => `name of ${JSON.stringify(text.slice(0, 20))}`)) };
}
