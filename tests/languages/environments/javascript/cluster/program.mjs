// A Redis Cluster of three nodes: names on all nodes, slots that move while callers wait, and a node that stands still.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import Redis from 'ioredis';
import { Luagate } from 'luagate';
import { createCluster } from 'redis';

const folder = mkdtempSync(`${tmpdir()}/luagate-cluster-`);
const nodes = []; // { port, process, id }

const freePort = () =>
  new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

function cli({ port }, ...words) {
  return execFileSync('redis-cli', ['-p', String(port), ...words], { encoding: 'utf8' }).trim();
}

async function eventually(what, isTrue) {
  const end = Date.now() + 30_000;
  while (!isTrue()) {
    assert(Date.now() < end, `not within 30 s: ${what}`);
    await sleep(50);
  }
}

async function start() {
  for (let i = 0; i < 3; i++) {
    const [port, bus] = [await freePort(), await freePort()];
    const options = ['--port', port, '--cluster-port', bus, '--cluster-enabled', 'yes', '--save', '', '--dir', folder];
    const more = ['--cluster-config-file', `${port}.conf`, '--cluster-node-timeout', '60000', '--bind', '127.0.0.1'];
    const child = spawn('redis-server', [...options, ...more].map(String), { stdio: 'ignore' });
    const node = { port, bus, process: child };
    nodes.push(node);
    await eventually('the node answers', () => {
      try {
        return cli(node, 'ping') === 'PONG';
      } catch {
        return false;
      }
    });
    node.id = cli(node, 'cluster', 'myid');
  }
  const bounds = [0, 5_461, 10_923, 16_384];
  nodes.forEach((node, i) => {
    cli(node, 'cluster', 'addslotsrange', String(bounds[i]), String(bounds[i + 1] - 1));
    if (i > 0) cli(node, 'cluster', 'meet', '127.0.0.1', String(nodes[0].port), String(nodes[0].bus));
  });
  await eventually('the cluster is complete', () =>
    nodes.every((node) => {
      const info = cli(node, 'cluster', 'info');
      return info.includes('cluster_state:ok') && info.includes('cluster_known_nodes:3');
    }),
  );
}

const slotOf = (name) => cli(nodes[0], 'cluster', 'keyslot', `{${name}}`);
const nodeOf = (name) => nodes.findIndex((_, i) => Number(slotOf(name)) < [5_461, 10_923, 16_384][i]);

/** A name on each node. */
function names(prefix) {
  const found = [];
  for (let i = 0; found.filter(Boolean).length < 3; i++) found[nodeOf(`${prefix}${i}`)] ??= `${prefix}${i}`;
  return found;
}

async function check(prefix, make) {
  const client = make().on('error', () => {});
  const gate = new Luagate(client, { prefix: `luagate:${prefix}` });
  const [a, b, c] = names(prefix);

  // Names on all nodes: waits, several at once, one round of calls.
  for (const name of [a, b, c]) {
    const first = await gate.mutex(name).acquire({ timeout: 10_000 });
    const second = gate.mutex(name).acquire({ timeout: 20_000 });
    await eventually('it waits', () => cli(nodes[nodeOf(name)], 'exists', `luagate:${prefix}:mutex.queue:{${name}}`) === '1');
    assert.equal(await first.release(), true);
    assert.equal(await (await second).release(), true);
  }
  const all = await gate.several([a, b, c].map((name) => [gate.mutex(name)])).acquire({ timeout: 10_000 });
  assert.equal(await all.release(), true);
  await assert.rejects(gate.several([[gate.mutex(a)], [gate.mutex(b)]]).tryAcquire(), /hash tag/);
  console.log(`${prefix}: names on all nodes`);

  // The slot moves from its node to the next one while a permit is held and a caller waits.
  const [from, to] = [nodes[nodeOf(a)], nodes[(nodeOf(a) + 1) % 3]];
  const slot = slotOf(a);
  const held = await gate.mutex(a, { lease: 60_000 }).acquire({ timeout: 10_000 });
  const waiter = gate.mutex(a).acquire({ timeout: 60_000 });
  await eventually('it waits', () => cli(from, 'exists', `luagate:${prefix}:mutex.queue:{${a}}`) === '1');
  cli(to, 'cluster', 'setslot', slot, 'importing', from.id);
  cli(from, 'cluster', 'setslot', slot, 'migrating', to.id);
  for (let keys; (keys = cli(from, 'cluster', 'getkeysinslot', slot, '100').split('\n').filter(Boolean)).length > 0; ) {
    keys.forEach((key) => cli(from, 'migrate', '127.0.0.1', String(to.port), key, '0', '5000'));
  }
  await held.refresh(); // ASK
  for (const node of [to, from, ...nodes]) cli(node, 'cluster', 'setslot', slot, 'node', to.id);
  await held.refresh(); // MOVED
  assert.equal(await held.release(), true);
  assert.equal(await (await waiter).release(), true);
  console.log(`${prefix}: slots that move`);

  // One node stands still: the permits on the others are renewed, and calls go on.
  const lost = [];
  const renewed = [];
  for (const name of [b, c]) {
    for (let i = 0; i < 50; i++) {
      const options = { lease: 3_000, autoRenew: true, onLost: () => lost.push(name) };
      renewed.push(await gate.semaphore(name, 100, options).acquire({ timeout: 10_000 }));
    }
  }
  const still = nodes[nodeOf(b)];
  still.process.kill('SIGSTOP');
  const calls = Array.from({ length: 100 }, () => gate.mutex(b).acquire({ timeout: 6_000 }).catch((error) => error.name));
  const healthy = gate.mutex(c);
  const end = Date.now() + 6_000;
  while (Date.now() < end) assert.equal(await (await healthy.acquire({ timeout: 3_000 })).release(), true);
  assert.deepEqual([...new Set(await Promise.all(calls))], ['TimedOutError']);
  still.process.kill('SIGCONT');
  assert.equal(lost.includes(c), false, 'a permit on a healthy node was lost');
  const after = await gate.mutex(b).acquire({ timeout: 20_000 });
  assert.equal(await after.release(), true);
  await Promise.all(renewed.map((permit) => permit.release()));
  console.log(`${prefix}: a node that stands still`);

  await gate.close();
  client.disconnect?.();
}

try {
  await start();
  const [{ port }] = nodes;
  const rootNodes = nodes.map((node) => ({ url: `redis://127.0.0.1:${node.port}` }));
  await check('noderedis', () => createCluster({ rootNodes }));
  await check('ioredis', () => new Redis.Cluster([{ host: '127.0.0.1', port }], { lazyConnect: true }));
} finally {
  nodes.forEach((node) => node.process.kill('SIGCONT') && node.process.kill('SIGKILL'));
  await Promise.all(nodes.map((node) => new Promise((resolve) => node.process.on('exit', resolve))));
  rmSync(folder, { recursive: true });
}
