// Acquires and releases permits of the semaphore `together` until its input ends: worker <url> <prefix> <seed>
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { DeniedError, Luagate, Ticket } from 'luagate';
import { createClient, ErrorReply } from 'redis';

const [url, prefix, seed] = process.argv.slice(2);
const redis = await createClient({ url })
  .on('error', () => {}) // node-redis connects again
  .connect();
const luagate = new Luagate(redis, { prefix });
const HEAD_START = 50; // of one call in four, in ms
const together = (headStart) => luagate.semaphore('together', 3, { lease: 2_000, headStart });

let isWorking = true;
process.stdin.on('end', () => (isWorking = false)).resume();

let calls = 0;

/** A number from 0 up to 1. The same seed gives the same numbers. */
function random() {
  const hash = createHash('sha256').update(`${seed} ${calls++}`).digest();
  return hash.readUInt32BE() / 2 ** 32;
}

/** Adds an entry. Retries if the reply is lost: a second entry does no harm. */
async function log(entry) {
  for (;;) {
    try {
      return await redis.xAdd(`${prefix}:log`, '*', entry);
    } catch (error) {
      if (error instanceof ErrorReply) throw error;
      await sleep(20);
    }
  }
}

async function stay(permit, headStart) {
  const { id, permits, fence, ticket, expiresAt } = permit;
  const place = ticket ? new Ticket(String(ticket)) : 0; // by its text
  const grant = { permits: `${permits}`, fence: `${fence}`, ticket: `${place}`, expires_at: `${expiresAt}` };
  const numbers = { ...grant, head_start: `${headStart}` };
  try {
    await log({ event: 'enter', language: 'javascript', id, ...numbers });
    await sleep(random() * 20);
    if (random() < 1 / 3) await permit.refresh();
  } finally {
    await log({ event: 'leave', id });
    await permit.release();
  }
  console.log('served');
}

while (isWorking) {
  try {
    const permits = random() < 1 / 2 ? 1 : 2;
    const isPatient = random() >= 1 / 4;
    const headStart = random() < 1 / 4 ? HEAD_START : 0;
    const semaphore = together(headStart);
    const permit = await (isPatient
      ? semaphore.acquire({ permits, timeout: 20_000 })
      : semaphore.tryAcquire({ permits }));
    await stay(permit, headStart);
  } catch (error) {
    if (error instanceof DeniedError) {
      await sleep(1 + random() * 19);
      continue;
    }
    console.log(`error ${error.message.replaceAll('\n', ' ')}`);
    await sleep(50);
  }
}

console.log('finished');
await luagate.close();
redis.destroy();
