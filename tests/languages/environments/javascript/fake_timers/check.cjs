// Calls luagate while the timers of the program are replaced.
const Redis = require('ioredis');
const { Luagate } = require('luagate');
const { createClient } = require('redis');

const clients = { redis: () => createClient({ url: process.env.REDIS_URL }) };
clients.ioredis = () => new Redis(process.env.REDIS_URL, { lazyConnect: true });

/** `advance(ms)` moves the fake time. */
module.exports = async function check(names, advance) {
  for (const name of names) {
    const gate = new Luagate(clients[name]());
    const mutex = gate.mutex(`fake-${name}`, { lease: 400, autoRenew: true });
    const permit = await mutex.acquire({ timeout: 5_000 });
    advance(3_600_000);
    const refused = await mutex.acquire({ timeout: 1_200 }).catch((error) => error); // longer than two leases
    if (refused.name !== 'TimedOutError') throw new Error(`a wait did not time out: ${refused}`);
    if (permit.isLost || !(await permit.release())) throw new Error('it was not renewed');
    await gate.close();
  }
};
