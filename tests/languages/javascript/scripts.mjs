// Reads the scripts of luagate from the folder `lua/`, and runs them.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { ErrorReply } from 'redis';

const CONTRACT = 1; // the version of lua/README.md that this client implements
const REPLY_MS = 2_000; // after this time without a reply, the reply counts as lost

export const sha1 = (bytes) => createHash('sha1').update(bytes).digest('hex');

/** Reads the scripts that the manifest of the folder lists, by their names. */
export function loadScripts(folder) {
  const { contract, scripts } = JSON.parse(readFileSync(`${folder}/manifest.json`, 'utf8'));
  if (contract !== CONTRACT) {
    const accepted = `contract ${CONTRACT}. Use the folder lua/ that belongs to this client`;
    throw new Error(`${folder}: got contract ${contract}. Accepted: ${accepted}`);
  }
  for (const [name, script] of Object.entries(scripts)) {
    script.text = readFileSync(`${folder}/${script.file}`, 'utf8');
    if (sha1(script.text) !== script.sha1) {
      const why = `the SHA-1 of ${script.file} differs from the manifest`;
      throw new Error(`${name}: ${why}. Copy the folder lua/ again, byte for byte`);
    }
  }
  return scripts;
}

/** Runs a script, and loads it first if the server does not have it. */
export function runScript(redis, { sha1, text }, keys, argv) {
  const rest = [String(keys.length), ...keys, ...argv];
  const run = () => redis.sendCommand(['EVALSHA', sha1, ...rest]);
  const load = () => redis.sendCommand(['SCRIPT', 'LOAD', text]);
  const ifUnknown = (attempt) => (error) => {
    if (!error.message.startsWith('NOSCRIPT')) throw error;
    return attempt();
  };
  return run()
    .catch(ifUnknown(() => Promise.all([load(), run()]).then((replies) => replies[1]))) // sent in one packet
    .catch(ifUnknown(() => redis.sendCommand(['EVAL', text, ...rest])));
}

/** Repeats a call whose reply is lost or late. This is safe for calls whose outcome stays the same. */
export async function untilReplied(call, tries = 4) {
  const alarm = new AbortController();
  const late = sleep(REPLY_MS, null, { signal: alarm.signal }).then(() => {
    throw new Error(`no reply within ${REPLY_MS} ms`);
  });
  try {
    return await Promise.race([call(), late]);
  } catch (error) {
    if (error instanceof ErrorReply || tries === 1) throw error;
  } finally {
    alarm.abort();
  }
  await sleep(100);
  return untilReplied(call, tries - 1);
}

/** Like `runListed`, with arguments by name. */
export function runNamed(redis, script, keys, args, tries) {
  // The last arguments may be left out.
  const argv = script.argv.filter((name) => name in args).map((name) => args[name]);
  return runListed(redis, script, keys, argv, tries);
}

/**
 * Runs a script, and retries until it replies. Returns the `word` and the fields of the reply, and `clock`: the minimum
 * offset of this process's monotonic clock from the server's clock.
 */
export function runListed(redis, script, keys, args, tries) {
  const argv = args.map(String);
  const call = async () => {
    const sentAt = performance.now();
    const [word, ...values] = await runScript(redis, script, keys, argv);
    const fields = Object.fromEntries(script.replies[word].map((name, i) => [name, values[i]]));
    return { word, ...fields, clock: sentAt - fields.now };
  };
  return untilReplied(call, tries);
}
