// Reads one command per line, runs it, and prints one line with its result: limits <url> <prefix>
//
// acquire MS WANT, try WANT, several MS WANT..., try_several WANT...: acquire permits. refresh, release, look: apply to the
// permits granted last. await_lost MS: waits for the notice that they are lost. A WANT is
// NAME/LIMIT/PERMITS/LEASE_MS/MAX_WAITING/AT_LEAST_MS, and /HEAD_START_MS if it has one. A LEASE_MS that ends with + is renewed;
// - means no explicit lease.
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { DeniedError, LineFullError, LostError, Luagate, TimedOutError } from 'luagate';
import { createClient } from 'redis';

const [url, prefix] = process.argv.slice(2);
const gate = new Luagate(createClient({ url }), { prefix });
let held, lost;

function want(text) {
  const [name, limit, permits, lease, maxWaiting, atLeast, headStart] = text.split('/');
  const options = { maxWaiting: Number(maxWaiting), atLeast: Number(atLeast), autoRenew: lease.endsWith('+') };
  if (lease !== '-') options.lease = parseInt(lease);
  if (headStart !== undefined) options.headStart = Number(headStart);
  return [gate.semaphore(name, Number(limit), options), Number(permits)];
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
  if (verb === 'await_lost') return awaitLost(Number(words[0]));
  held = await ask(verb, words);
  lost = held.signal;
  return ['held', ...(held.fences ?? [held.fence])].join(' ');
}

async function awaitLost(ms) {
  const isLost = () => lost.aborted && lost.reason instanceof LostError;
  if (!isLost()) {
    const alarm = new AbortController();
    lost.addEventListener('abort', () => alarm.abort());
    await sleep(ms, null, { signal: alarm.signal }).catch(() => {});
  }
  return isLost() ? 'lost' : 'held';
}

function resultOf(error) {
  if (error instanceof DeniedError) return 'none';
  if (error instanceof LineFullError) return `full ${error.waiting}`;
  if (error instanceof TimedOutError) return 'timed_out';
  if (error instanceof LostError) return 'lost';
  return `refused ${error.message}`;
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await answer(line.split(' ')).catch(resultOf));
}
await gate.close();
