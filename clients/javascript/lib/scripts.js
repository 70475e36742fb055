// The scripts of this package, their arguments and their replies.
const { UnexpectedReplyError } = require('./errors.js');
const files = require('./lua.js');
const { createHash, localTime, readFileSync } = require('./node.js');

const CONTRACT = 1; // the version of lua/README.md that this package implements

// The fields that are lists, and the length of each row. All other fields are numbers.
const ROWS = {
  'semaphore/inspect': { holders: 5, waiters: 4 },
  'semaphore/try_acquire_several': { permits: 5, usages: 3 },
};

const sha1 = (bytes) => createHash('sha1').update(bytes).digest('hex');

/** The scripts of this package, or those in a folder, by their names in the manifest. */
function loadScripts(folder) {
  const read = (file) => (folder === undefined ? files[file] : readFileSync(`${folder}/${file}`, 'utf8'));
  const { contract, scripts } = JSON.parse(read('manifest.json'));
  if (contract !== CONTRACT) {
    const accepted = `contract ${CONTRACT}. Use the folder lua/ that belongs to this package`;
    throw new Error(`${folder}: got contract ${contract}. Accepted: ${accepted}`);
  }
  for (const [name, script] of Object.entries(scripts)) {
    script.name = name;
    script.text = read(script.file);
    if (sha1(script.text) !== script.sha1) {
      const why = `the SHA-1 of ${script.file} differs from the manifest`;
      throw new Error(`${name}: ${why}. Copy the folder lua/ again, byte for byte`);
    }
  }
  return scripts;
}

/**
 * Calls a script. If the server does not have it, calls `missing` and sends its text, which the server keeps.
 * `isSure`: sends the text at once unless the server has run the script on this connection, so that the server runs
 * it before the next command.
 */
async function runScript(redis, { sha1, text }, keys, argv, { isSure = false, missing } = {}) {
  const rest = [String(keys.length), ...keys, ...argv];
  const withText = () => redis.sendCommand(['EVAL', text, ...rest]);
  let reply;
  try {
    reply = await (isSure && !redis.scripts.has(sha1) ? withText() : redis.sendCommand(['EVALSHA', sha1, ...rest]));
  } catch (error) {
    if (!error.message.startsWith('NOSCRIPT')) throw error;
    missing?.();
    reply = await withText();
  }
  redis.scripts?.add(sha1);
  return reply;
}

/** The arguments of a call, in the order of the manifest. The last ones may be left out. */
function argvOf(script, args) {
  return script.argv.filter((name) => name in args).map((name) => args[name]);
}

/**
 * Calls a script once. Returns the `word` and the fields of the reply, and `clock`: the time of this process, by
 * `localTime()`, less the server's time. It is rather too small than too large.
 */
async function callOnce(redis, script, keys, argv, how) {
  const sentAt = localTime();
  const reply = await runScript(redis, script, keys, argv.map(String), how);
  const fields = fieldsOf(script, reply);
  return { ...fields, clock: sentAt - fields.now };
}

// The `word` and the fields of a reply.
function fieldsOf({ name, replies }, reply) {
  const [word, ...values] = !Array.isArray(reply) ? [] : '' in replies ? ['', ...reply] : reply;
  const names = Object.hasOwn(replies, word) ? replies[word] : null;
  const isField = (field, i) => {
    const length = ROWS[name]?.[field];
    return length ? areRows(values[i], length, name === 'semaphore/inspect') : isNumber(values[i]);
  };
  if (!names?.every(isField)) throw new UnexpectedReplyError(name, reply);
  return { word, ...Object.fromEntries(names.map((field, i) => [field, values[i]])) };
}

const isNumber = (value) => Number.isSafeInteger(value) && value >= -1;

// Whether it is a list of rows of numbers. With ids, each row begins with one.
function areRows(value, length, hasIds) {
  const isCell = (cell, i) => (hasIds && i === 0 ? typeof cell === 'string' : isNumber(cell));
  const isRow = (row) => Array.isArray(row) && row.length >= length && row.slice(0, length).every(isCell);
  return Array.isArray(value) && value.every(isRow);
}

module.exports = { sha1, loadScripts, runScript, argvOf, callOnce };
