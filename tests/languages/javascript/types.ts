// Uses every name of the type definitions. It is compiled, not run.
import {
  AboveLimitError,
  ClosedError,
  type Counters,
  DeniedError,
  type Inspection,
  InvalidError,
  LimitMismatchError,
  LineFullError,
  LostError,
  Luagate,
  LuagateError,
  NoPermissionError,
  type Permit,
  type Permits,
  RevokedError,
  type RwLock,
  type Semaphore,
  Ticket,
  TimedOutError,
  UnexpectedReplyError,
  UnreachableError,
} from 'luagate';
import { Cluster, Redis } from 'ioredis';
import { createClient, createClientPool, createCluster } from 'redis';
import { createClient as createOldestClient } from 'redis-oldest';

const redis = createClient({ url: 'redis://127.0.0.1/' });
const onWarning = (warning: Error) => console.warn(warning.message, warning.cause);
const gate = new Luagate(redis, { prefix: 'luagate', callTimeout: 2_000, label: 'host7', onWarning });
new Luagate(createOldestClient());
new Luagate(new Redis());
const market: Semaphore = gate.semaphore('market', 5, {
  lease: 10_000,
  autoRenew: true,
  maxWaiting: 100,
  atLeast: 1_000,
  label: 'anna',
  strict: true,
  onLost: (error: LostError) => console.log(error.message),
});
const lock: Semaphore = gate.mutex('lock', { headStart: 10_000, lease: 'permanent' });
const book: RwLock = gate.rwlock('book', { lease: 10_000 });

const permit: Permit = await market.acquire({ permits: 2, timeout: 2_000, signal: AbortSignal.timeout(3_000) });
const values: [string, number, number, Ticket | null, number, number] = [
  permit.id,
  permit.permits,
  permit.fence,
  permit.ticket,
  permit.limit,
  permit.expiresAt,
];
const left: number = permit.isLost ? 0 : permit.remaining();
await fetch('http://127.0.0.1/', { signal: permit.signal });
await permit.refresh();
const wasHeld: boolean = await permit.release();
const text: string = await lock.use({ timeout: 2_000, check: true }, async ({ fence }) => `${fence}`);
const length: number = await lock.use({}, () => 1);
{
  await using writer = await book.write.tryAcquire();
  await writer.downgrade();
}

const several = gate.several([[market, 1], [lock, 1], [book.read]]);
const permits: Permits = await several.tryAcquire();
const fences: number[] = (await several.acquire({ timeout: 2_000 })).fences;
await several.use({ timeout: 2_000 }, (all) => all.permits.map((one) => one.id));

const state: Inspection = await market.inspect();
const tickets: string[] = state.waiters.map(({ ticket }) => ticket).sort(Ticket.compare).map((ticket) => `${ticket}`);
const stored: Ticket = new Ticket(tickets[0]);
// @ts-expect-error: a number is no ticket
const guessed = new Ticket(17);
const labels: Array<string | null> = [...state.holders, ...state.waiters].map(({ label }) => label);
const leases: Array<number | null> = state.holders.map(({ remaining, coolingDown }) => (coolingDown ? 0 : remaining));
const numbers: number[] = [state.limit ?? 0, state.inUse, state.waiterCount, state.pinned ? 1 : 0];
const { old, new: now, inUse }: { old: number; new: number; inUse: number } = await market.resize(7);
const isRevoked: boolean = await market.revoke('anna/1');
try {
  await market.acquire();
} catch (error) {
  if (error instanceof LineFullError || error instanceof DeniedError || error instanceof TimedOutError) {
    const wait: number = error.retryAfter(500);
    console.log(error.semaphore, error.inUse, error.limit, error.waiting, error.nextExpiry ?? 'never', wait);
  }
  if (error instanceof AboveLimitError || error instanceof LimitMismatchError) console.log(error.limit);
  const others = [
    ClosedError,
    InvalidError,
    LostError,
    LuagateError,
    NoPermissionError,
    RevokedError,
    UnexpectedReplyError,
  ];
  console.log([...others, UnreachableError].some((one) => error instanceof one));
}
const counters: Counters = gate.counters();
const { granted, denied, lineFull, waited, lost, renewed, reconnects } = counters;
const counts: number[] = [granted, denied, lineFull, waited, lost, renewed, reconnects];
// @ts-expect-error The counters are read.
counters.granted = 0;
await gate.close();
console.log(values, left, wasHeld, text, length, permits, fences, labels, leases, numbers, old, now, inUse, isRevoked);
console.log(tickets, stored, guessed, counts);

// @ts-expect-error A name is a text.
gate.semaphore(17, 5);
// @ts-expect-error A semaphore has a limit.
gate.semaphore('market');
// @ts-expect-error A setting has this name.
gate.semaphore('market', 5, { leases: 10_000 });
// @ts-expect-error A permanent lease has this name.
gate.semaphore('market', 5, { lease: 'forever' });
// @ts-expect-error A client of another package.
new Luagate({ eval: () => {} });
new Luagate(createCluster({ rootNodes: [] }));
new Luagate(new Cluster([]));
// @ts-expect-error A pool.
new Luagate(createClientPool());
