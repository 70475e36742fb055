// gates.mjs URL PREFIX: a block that ends after its gate was closed, with each package.
import assert from 'node:assert/strict';
import Redis from 'ioredis';
import { Luagate } from 'luagate';
import { createClient } from 'redis';

const [url, prefix] = process.argv.slice(2);
const LEASE_MS = 300;
const OF_OTHER = 3; // the connections of a gate: for calls, for messages, and one that tests the second one

const admin = createClient({ url });
await admin.connect();

/** The number of connections that the server has accepted. */
async function connections() {
  return Number(/total_connections_received:(\d+)/.exec(await admin.info('stats'))[1]);
}

/** The block `run(semaphore, work)` ends after its gate was closed. */
async function blockEndsAfterClose(client, name, run) {
  const [warnings, losses] = [[], []];
  const gate = new Luagate(client, { prefix, onWarning: ({ message }) => warnings.push(message) });
  const semaphore = gate.semaphore(name, 1, { lease: LEASE_MS, onLost: (error) => losses.push(error) });
  let before;
  const value = await run(semaphore, async () => {
    await gate.close();
    before = await connections();
    return 'work';
  });
  assert.equal(value, 'work');
  assert.equal((await semaphore.tryAcquire().catch((error) => error)).name, 'ClosedError');
  const other = new Luagate(createClient({ url }), { prefix });
  const waited = await other.semaphore(name, 1).acquire({ timeout: 10_000 }); // until the lease has ended
  await waited.release();
  await other.close();
  assert.equal(await connections(), before + OF_OTHER, 'the closed gate has opened a connection');
  assert.deepEqual(losses, [], 'the block had ended');
  assert.deepEqual(warnings, ['the gate is closed: what is not released stays held until its lease ends']);
}

const blocks = {
  use: (semaphore, work) => semaphore.use({}, work),
  check: (semaphore, work) => semaphore.use({ check: true }, work),
  several: (semaphore, work) => semaphore.gate.several([[semaphore]]).use({}, work),
};
const clients = {
  redis: () => createClient({ url }),
  ioredis: () => new Redis(url, { lazyConnect: true }),
};
for (const [name, client] of Object.entries(clients)) {
  for (const [kind, run] of Object.entries(blocks)) await blockEndsAfterClose(client(), `${name}-${kind}`, run);
}
await admin.close();
