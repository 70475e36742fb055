import assert from 'node:assert/strict';
import { Redis } from 'ioredis';
import { Luagate } from 'luagate';
import { createClient } from 'redis';

const [, , name, role] = process.argv;
const url = process.env.REDIS_URL;
const gate = new Luagate(name === 'redis' ? createClient({ url }) : new Redis(url, { lazyConnect: true }));
const locks = ['first', 'second'].map((part) => gate.mutex(`exit:${name}:${part}`));
if (role === 'exits') {
  await locks[0].use({ timeout: 2_000 }, () => {}); // the first release of a connection has the text of the script
  await locks[1].use({ timeout: 2_000 }, () => {});
  process.exit();
}
for (const lock of locks) assert.equal((await lock.inspect()).inUse, 0);
await gate.close();
