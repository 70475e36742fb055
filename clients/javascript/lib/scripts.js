// The scripts of this package, their arguments and their replies.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const CONTRACT = 1; // the version of lua/README.md that this package implements
const FOLDER = fileURLToPath(new URL('../lua', import.meta.url));

export const sha1 = (bytes) => createHash('sha1').update(bytes).digest('hex');

/** The scripts in a folder, by their names in its manifest. */
export function loadScripts(folder = FOLDER) {
  const { contract, scripts } = JSON.parse(readFileSync(`${folder}/manifest.json`, 'utf8'));
  if (contract !== CONTRACT) {
    const accepted = `contract ${CONTRACT}. Use the folder lua/ that belongs to this package`;
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

/** Calls a script, and loads it first if the server does not have it. */
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

/** The arguments of a call, in the order of the manifest. The last ones may be left out. */
export function argvOf(script, args) {
  return script.argv.filter((name) => name in args).map((name) => args[name]);
}

/**
 * Calls a script once. Returns the `word` and the fields of the reply, and `clock`: the time of this process, by
 * `performance.now()`, less the server's time. It is rather too small than too large.
 */
export async function callOnce(redis, script, keys, argv) {
  const sentAt = performance.now();
  const reply = await runScript(redis, script, keys, argv.map(String));
  const [word, ...values] = '' in script.replies ? ['', ...reply] : reply;
  const fields = Object.fromEntries(script.replies[word].map((name, i) => [name, values[i]]));
  return { word, ...fields, clock: sentAt - fields.now };
}
