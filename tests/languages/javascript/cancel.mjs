// Starts 1,000 calls of `acquire` for a semaphore of 3 permits, and aborts most after a random time: cancel <url> <prefix>
// Prints how many were granted and how many were aborted.
import { setTimeout as sleep } from 'node:timers/promises';
import { Luagate } from 'luagate';
import { createClient } from 'redis';

const [url, prefix] = process.argv.slice(2);
const gate = new Luagate(createClient({ url }), { prefix });
const semaphore = gate.semaphore('cancelled', 3, { lease: 60_000 });
let [granted, aborted] = [0, 0];

async function attempt() {
  const enough = new AbortController();
  if (Math.random() < 0.7) setTimeout(() => enough.abort('enough'), Math.random() * 30);
  try {
    await semaphore.use({ permits: Math.random() < 0.5 ? 1 : 2, signal: enough.signal }, () =>
      sleep(Math.random() * 5),
    );
    granted++;
  } catch (error) {
    if (error !== 'enough') throw error;
    aborted++;
  }
}

for (let round = 0; round < 20; round++) await Promise.all(Array.from({ length: 50 }, attempt));
await gate.close();
console.log(`${granted} ${aborted}`);
