// The lock of redlock on one server, with a lease of 10 s and as many attempts as it takes, 200 to 300 ms apart.

import { Redis } from 'ioredis';
import Redlock from 'redlock';
import { play, scene } from '../languages/javascript/scenes.mjs';

const asked = scene();
const client = new Redis(asked.url);
await client.ping();
const redlock = new Redlock([client], { retryCount: -1 });

await play(
  asked,
  asked.permits,
  (number) => redlock.lock(`lock-${number}`, 10_000),
  (lock) => lock.unlock(),
);
client.disconnect();
