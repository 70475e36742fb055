import { createClient } from 'redis';
import { Luagate } from './luagate.mjs';

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1/';
const redis = await createClient({ url }).on('error', console.error).connect();
const gate = new Luagate(redis, 'lua');

// At most five processes of this account are in the market at a time.
const market = gate.semaphore('market:account:17', 5, { lease: 10_000 });
try {
  // In line, first come, first served.
  await market.use({ timeout: 2_000 }, async (permit) => {
    console.log(`trading as ${permit.id}, fence ${permit.fence}`);
  });
} finally {
  gate.close();
  redis.destroy();
}
