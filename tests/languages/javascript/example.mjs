import { createClient } from 'redis';
import { Luagate } from './luagate.mjs';

const redis = await createClient({ url: process.env.REDIS_URL }).on('error', console.error).connect();
const luagate = new Luagate(redis, `${import.meta.dirname}/../../../lua`);
const printers = luagate.semaphore('printers', 3);

await printers.use({ timeout: 10_000 }, async (permit) => {
  console.log(`printing with one of 3 printers, fence ${permit.fence}`);
});

luagate.close();
redis.close();
