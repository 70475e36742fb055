import Redis from 'ioredis';
import { Luagate, LuagateError } from 'luagate';
import { createClient } from 'redis';

const url = process.env.REDIS_URL;
const wrong = url.replace('//', '//nobody:secret@');

async function check(clientOf) {
  const gate = new Luagate(clientOf(url));
  const mutex = gate.mutex('bundled');
  await mutex.use({ timeout: 2_000 }, async ({ isLost }) => {
    if (isLost) throw new Error('lost');
    const refused = await mutex.tryAcquire().catch((error) => error);
    if (refused.name !== 'DeniedError' || !(refused instanceof LuagateError)) throw refused;
  });
  await gate.close();
  const stranger = new Luagate(clientOf(wrong));
  const refused = await stranger
    .mutex('bundled')
    .tryAcquire()
    .catch((error) => error);
  if (refused.name !== 'NoPermissionError') throw refused;
  await stranger.close();
}

async function main() {
  await check((address) => createClient({ url: address }).on('error', () => {}));
  await check((address) => new Redis(address, { lazyConnect: true }).on('error', () => {}));
  console.log('works');
}

main();
