// Runs a scene with many workers in one process: they acquire, hold and release until the time is over.

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

/** The arguments of the program; the README of the folder `peers` describes them. */
export function scene() {
  const [url, workers, permits, holdUs, seconds, turns] = process.argv.slice(2);
  // Once: each worker takes one turn, then waits for all others; otherwise it asks again at once.
  return { url, workers: +workers, permits: +permits, holdMs: holdUs / 1000, seconds: +seconds, once: turns === 'once' };
}

/** `enter` receives the number of a lock, below `locks`; `leave` receives what `enter` resolved to. */
export function play(scene, locks, enter, leave) {
  return playBlocks(scene, locks, async (lock, hold) => {
    const permit = await enter(lock);
    await hold();
    await leave(permit);
  });
}

/** `block` receives the number of a lock, below `locks`, and a function that holds it for its time. */
export async function playBlocks(scene, locks, block) {
  console.log('ready');
  const lines = createInterface({ input: process.stdin });
  await new Promise((resolve) => lines.once('line', resolve));
  lines.close();
  const start = performance.now();
  const now = () => Math.floor((performance.now() - start) * 1000);
  const goesOn = () => now() < scene.seconds * 1e6;
  const stays = [];
  const work = async () => {
    do {
      const lock = Math.floor(Math.random() * locks);
      const asked = now();
      await block(lock, async () => {
        const entered = now();
        if (scene.holdMs) await sleep(scene.holdMs);
        stays.push([lock, asked, entered, now()]);
      });
    } while (goesOn() && !scene.once);
  };
  while (goesOn()) await Promise.all(Array.from({ length: scene.workers }, work));
  console.log(JSON.stringify({ stays }));
}
