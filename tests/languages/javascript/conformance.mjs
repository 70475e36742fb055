// Runs the cases of lua/conformance/: conformance <url> <folder of the cases> <folder lua/>
import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, RESP_TYPES } from 'redis';
import { loadScripts, runScript, sha1 } from 'luagate/scripts';

const [url, casesFolder, luaFolder] = process.argv.slice(2);
const scripts = loadScripts(luaFolder);
const commandOptions = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };
const redis = await createClient({ url, commandOptions }).connect();
const subscriber = await redis.duplicate().connect();

const KINDS = ['call', 'subscribe', 'unsubscribe', 'message', 'silence', 'pause_ms', 'ends', 'command', 'full', 'each'];
const PATTERN = /^([$*<>]|\d+\.\.)/;

// Texts are strings with one character per byte.
const latin1 = (bytes) => Buffer.from(bytes).toString('latin1');
const plain = (reply) => (Array.isArray(reply) ? reply.map(plain) : Buffer.isBuffer(reply) ? latin1(reply) : reply);
const send = async (...words) => plain(await redis.sendCommand(words));

async function serverTime() {
  const [seconds, microseconds] = await send('TIME');
  return Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000);
}

function check(fits, expected, got) {
  if (!fits) throw new Error(`expected ${JSON.stringify(expected)}, got ${JSON.stringify(got)}`);
}

/** A subscription. */
class Channel extends EventEmitter {
  #name;
  #messages = [];

  constructor(name) {
    super();
    this.#name = name;
  }

  async open() {
    const receive = (message) => {
      this.#messages.push(latin1(message));
      this.emit('message');
    };
    await subscriber.subscribe(this.#name, receive, true);
  }

  /** The messages that no step has consumed. A marker message ensures that all earlier messages have arrived. */
  async unread() {
    const marker = randomUUID();
    await redis.publish(this.#name, marker);
    while (this.#messages.at(-1) !== marker) await once(this, 'message');
    this.#messages.pop();
    return this.#messages;
  }

  async close() {
    await subscriber.unsubscribe(this.#name);
  }
}

/** One run of a case. Each kind of step has a method. */
class Run {
  paused = 0;
  #prefix = `conformance:${randomUUID()}`;
  #names = new Map();
  #called; // the server's time before the last call and after it
  #channels = new Map();

  async case(steps) {
    try {
      await this.#steps(steps);
      await this.#steps([...this.#channels.keys()].map((channel) => ({ silence: channel })));
    } finally {
      await this.full({ full: false });
      for (const channel of this.#channels.values()) await channel.close();
    }
  }

  async #steps(steps) {
    for (const step of steps) {
      try {
        await this[KINDS.find((kind) => kind in step)](step);
      } catch (error) {
        error.step ??= step;
        throw error;
      }
    }
  }

  async call({ call, on = 'm', keys, argv, reply, error }) {
    const script = scripts[call];
    const names = script.keys.filter((name) => name !== '...');
    const keysOf = (thing) => names.map((name) => `@${name}:${thing}`);
    const keyList = (keys ?? [on].flat().flatMap(keysOf)).map((key) => this.#argument(key));
    const args = argv.map((argument) => this.#argument(argument));

    const watched = error !== undefined && keyList.length > 0;
    if (watched) await send('WATCH', ...keyList);
    const start = serverTime(); // sent in one packet with the script
    const got = await runScript(redis, script, keyList, args).then(plain, ({ message }) => ({ error: message }));
    this.#called = [await start, await serverTime()];
    this.#names.delete('now');
    if (error !== undefined) {
      const text = this.#text(error);
      check(text.startsWith('LUAGATE') ? got.error === text : got.error?.includes(text), text, got);
    } else {
      check(got.error === undefined, reply, got);
      this.#compare(reply, got);
      const { '': plain, [got[0]]: named = [] } = script.replies; // one field without a word is the reply itself
      const fields = plain ?? ['word', ...named];
      check(plain?.length === 1 || got.length === fields.length, fields, got);
    }
    if (watched) {
      await send('MULTI');
      check((await send('EXEC')) !== null, 'unchanged keys', 'a changed key');
    }
  }

  async subscribe({ subscribe: name }) {
    const channel = new Channel(this.#text(name));
    await channel.open();
    this.#channels.set(name, channel);
  }

  async unsubscribe({ unsubscribe: name }) {
    await this.silence({ silence: name });
    await this.#channels.get(name).close();
    this.#channels.delete(name);
  }

  async message({ message: expected, inbox, secret }) {
    const message = (await this.#channels.get(inbox).unread()).shift();
    check(message !== undefined, expected, 'no message');
    const words = message.split(' ');
    if (secret) {
      const signature = words.pop();
      check(signature === sha1(Buffer.from(secret + words.join(' '), 'latin1')), 'a valid signature', message);
    }
    const read = words.map((word) => (/^-?\d+$/.test(word) ? Number(word) : word));
    this.#compare(expected, read);
  }

  async silence({ silence: name }) {
    const unread = await this.#channels.get(name).unread();
    check(unread.length === 0, 'no message', unread);
  }

  async pause_ms({ pause_ms: pause }) {
    this.paused += pause;
    await sleep(pause + 1); // a timer can fire up to 1 ms early
  }

  async ends({ ends }) {
    for (const [key, end] of Object.entries(ends)) {
      const [now, ttl] = await Promise.all([serverTime(), send('PTTL', this.#text(key))]);
      this.#compare(end, ttl < 0 ? ttl : now + ttl, 2);
    }
  }

  async command({ command, reply = '*' }) {
    this.#compare(reply, await send(...command.map((word) => this.#argument(word))));
  }

  async full({ full }) {
    await send('CONFIG', 'SET', 'maxmemory', full ? '1' : '0');
  }

  async each({ each, steps }) {
    const values = Array.isArray(each) ? each : Array.from({ length: each }, (_, i) => i + 1);
    for (const value of values) {
      const json = JSON.stringify(value);
      const text = JSON.stringify(steps).replaceAll('"{each}"', () => json);
      await this.#steps(JSON.parse(text.replaceAll('{each}', () => json.replace(/^"|"$/g, ''))));
    }
  }

  #text(text) {
    const key = (_, name, thing = 'm') => `${this.#prefix}:${name}:{x}:${thing}`;
    return latin1(text.replace(/@(\w+)(?::(\w+))?/g, key));
  }

  #argument(value) {
    if (value.hex !== undefined) return Buffer.from(value.hex, 'hex');
    if (value.long !== undefined) return Buffer.from(value.long.repeat(value.times));
    const text = String(value);
    return text.startsWith('$') ? String(this.#sum(text)) : Buffer.from(this.#text(text), 'latin1');
  }

  #sum(text) {
    let sum = 0;
    for (const [, sign, name, digits] of text.matchAll(/([+-]?)(?:\$(\w+)|(\d+))/g)) {
      const value = name === 'us' ? this.#names.get('now') * 1_000 : name ? this.#names.get(name) : Number(digits);
      sum += sign === '-' ? -value : value;
    }
    return sum;
  }

  #compare(expected, got, tolerance = 0) {
    this.#bind(expected, got);
    check(this.#fits(expected, got, tolerance), expected, got);
  }

  #bind(expected, got) {
    if (Array.isArray(expected)) {
      expected.forEach((item, i) => this.#bind(item, got?.[i]));
    } else if (PATTERN.test(expected)) {
      for (const [, name] of expected.matchAll(/(?<=^| )\$(\w+)(?=$| )/g)) {
        if (!this.#names.has(name)) this.#names.set(name, got);
      }
    }
  }

  #fits(expected, got, tolerance) {
    if (Array.isArray(expected)) {
      const isList = Array.isArray(got) && got.length === expected.length;
      return isList && expected.every((item, i) => this.#fits(item, got[i], tolerance));
    }
    if (typeof expected === 'number') return got === expected;
    if (expected.hex !== undefined) return got === latin1(this.#argument(expected));
    if (expected.length !== undefined && typeof expected === 'object') return got.length === expected.length;
    if (!PATTERN.test(expected)) return got === this.#text(expected);
    return expected.split(' ').every((word) => this.#fitsWord(word, got, tolerance));
  }

  #fitsWord(word, got, tolerance) {
    if (word === '*') return true;
    if (word === '$now' && (got < this.#called[0] || got > this.#called[1])) return false;
    if (word.startsWith('$') && got === this.#names.get(word.slice(1))) return true; // the value may be a text
    const [, relation = '=', sum, to = sum] = /^([<>]=?)?(.+?)(?:\.\.(.+))?$/.exec(word);
    const [low, high] = [this.#sum(sum), this.#sum(to)];
    const ranges = {
      '=': [low, high],
      '<': [-Infinity, low - 1],
      '<=': [-Infinity, low],
      '>': [low + 1, Infinity],
      '>=': [low, Infinity],
    };
    const [least, most] = ranges[relation];
    return Number.isInteger(got) && got >= least - tolerance && got <= most + tolerance;
  }
}

async function failureOf({ steps, slack_ms = 20 }) {
  for (let tries = 1; ; tries++) {
    const run = new Run();
    const start = performance.now();
    try {
      return await run.case(steps);
    } catch (error) {
      const spent = performance.now() - start - run.paused;
      if (spent <= slack_ms || tries === 100) return error;
    }
  }
}

let passed = 0;
let failed = 0;
for (const file of readdirSync(casesFolder).sort()) {
  if (!file.endsWith('.json')) continue;
  for (const test of JSON.parse(readFileSync(`${casesFolder}/${file}`, 'utf8'))) {
    const failure = await failureOf(test);
    if (failure) {
      failed += 1;
      console.log(`${file}: ${test.name}: ${JSON.stringify(failure.step)}: ${failure.message}`);
    } else {
      passed += 1;
    }
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(passed > 0 && failed === 0 ? 0 : 1);
