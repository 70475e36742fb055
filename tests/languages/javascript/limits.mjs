// Reads one command per line, runs it, and prints one line with its result: limits <url> <prefix>
//
// acquire MS WANT, try WANT, several MS WANT..., try_several WANT...: acquire permits. refresh, release, look: apply to the
// permits granted last. A WANT is NAME/LIMIT/PERMITS/LEASE_MS/MAX_WAITING/AT_LEAST_MS.
import { createInterface } from 'node:readline';
import { createClient } from 'redis';
import { LineFullError, Luagate, PermitLostError, WaitTimeoutError } from './luagate.mjs';

const [url, prefix] = process.argv.slice(2);
const redis = await createClient({ url })
  .on('error', () => {})
  .connect();
const gate = new Luagate(redis, `${import.meta.dirname}/../../../lua`, prefix);
let held;

function want(text) {
  const [, name, numbers] = /^(.*?)((?:\/\d+){5})$/.exec(text);
  const [limit, permits, lease, maxWaiting, atLeast] = numbers.slice(1).split('/').map(Number);
  return [gate.semaphore(name, limit, { lease, maxWaiting, atLeast }), permits];
}

function ask(verb, words) {
  const timeout = ['acquire', 'several'].includes(verb) ? Number(words.shift()) : 0;
  const wants = words.map(want);
  const [[semaphore, permits] = []] = wants;
  if (verb === 'acquire') return semaphore.acquire({ permits, timeout });
  if (verb === 'try') return semaphore.tryAcquire({ permits });
  const several = gate.several(wants);
  return verb === 'several' ? several.acquire({ timeout }) : several.tryAcquire();
}

async function answer([verb, ...words]) {
  if (verb === 'release') return `released ${await held.release()}`;
  if (verb === 'look') return `${held.isLost ? 'lost' : 'held'} ${Math.floor(held.remaining())}`;
  if (verb === 'refresh') {
    await held.refresh();
    return 'refreshed';
  }
  held = await ask(verb, words);
  return held ? ['held', ...(held.fences ?? [held.fence])].join(' ') : 'none';
}

function resultOf(error) {
  if (error instanceof LineFullError) return `full ${error.waiting}`;
  if (error instanceof WaitTimeoutError) return 'timed_out';
  if (error instanceof PermitLostError) return 'lost';
  return `refused ${error.message}`;
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await answer(line.split(' ')).catch(resultOf));
}
gate.close();
redis.destroy();
