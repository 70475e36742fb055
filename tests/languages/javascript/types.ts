// Uses every name of the type definitions. It is compiled, not run.
import {
  LineFullError,
  Luagate,
  PermitLostError,
  type Permit,
  type Permits,
  type Semaphore,
  WaitRevokedError,
  WaitTimeoutError,
} from 'luagate';
import { createClient } from 'redis';

const redis = await createClient({ url: 'redis://127.0.0.1/' }).connect();
const gate = new Luagate(redis, { prefix: 'luagate' });
const market: Semaphore = gate.semaphore('market', 5, { lease: 10_000, autoRenew: true, maxWaiting: 100, atLeast: 1_000 });
const lock: Semaphore = gate.mutex('lock', { headStart: 10_000 });

const permit: Permit = await market.acquire({ permits: 2, timeout: 2_000, signal: AbortSignal.timeout(3_000) });
const values: [string, number, number, number, number] = [permit.id, permit.permits, permit.fence, permit.ticket, permit.expiresAt];
const left: number = permit.isLost ? 0 : permit.remaining();
await fetch('http://127.0.0.1/', { signal: permit.signal });
await permit.refresh();
const wasHeld: boolean = await permit.release();
const text: string = await lock.use({ timeout: 2_000 }, async ({ fence }) => `${fence}`);
const length: number = await lock.use({}, () => 1);
{
  await using maybe = await market.tryAcquire();
  if (maybe) console.log(maybe.fence);
}

const several = gate.several([
  [market, 1],
  [lock, 1],
]);
const permits: Permits | null = await several.tryAcquire();
const fences: number[] = (await several.acquire({ timeout: 2_000 })).fences;
await several.use({ timeout: 2_000 }, (all) => all.permits.map((one) => one.id));
try {
  await market.acquire();
} catch (error) {
  if (error instanceof LineFullError) console.log(error.waiting);
  console.log(error instanceof WaitTimeoutError, error instanceof WaitRevokedError, error instanceof PermitLostError);
}
gate.close();
console.log(values, left, wasHeld, text, length, permits, fences);

// @ts-expect-error A name is a text.
gate.semaphore(17, 5);
// @ts-expect-error A semaphore has a limit.
gate.semaphore('market');
// @ts-expect-error A setting has this name.
gate.semaphore('market', 5, { leases: 10_000 });
// @ts-expect-error A client of another package.
new Luagate({ eval: () => {} });
