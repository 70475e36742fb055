// The semaphore of redis-semaphore, with its defaults: a lease of 10 s, renewed, a retry every 10 ms for 10 s. Then the program
// asks again.

import { Redis } from 'ioredis';
import { Semaphore, TimeoutError } from 'redis-semaphore';
import { play, scene } from '../languages/javascript/scenes.mjs';

const asked = scene();
const client = new Redis(asked.url);
await client.ping();

async function enter() {
  const semaphore = new Semaphore(client, 'scene', asked.permits);
  for (;;) {
    try {
      await semaphore.acquire();
      return semaphore;
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error;
    }
  }
}

await play(asked, 1, enter, (semaphore) => semaphore.release());
client.disconnect();
