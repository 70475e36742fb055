// The nodes of a Redis Cluster, and which of them has a key.
const { within } = require('./timers.js');

const SLOTS = 16_384;
const FIND_MS = 2_000; // for one attempt to read which node has which slots
const ADDRESS = /^(.*):(\d+)$/; // the host may be an IPv6 address

/** The slot of a key: the CRC16 of its hash tag. All keys of this package have one. */
function slotOf(key) {
  let crc = 0;
  for (const byte of Buffer.from(/\{(.*?)\}/.exec(key)[1])) {
    crc ^= byte << 8;
    for (let i = 0; i < 8; i++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc % SLOTS;
}

/** One server, of which the address is always ''. */
class OneServer {
  isCluster = false;
  #make;

  constructor(make) {
    this.#make = make;
  }

  async addressOf() {
    return '';
  }

  knownAddressOf() {
    return '';
  }

  async some() {
    return this.#make;
  }

  makeAt() {
    return this.#make;
  }

  follow() {}

  forget() {}
}

/** The masters of a cluster. The client of the program tells the first ones. Later, they tell of each other. */
class Cluster {
  isCluster = true;
  #first; // reads the nodes with the client of the program: `{ slots, templates }`
  #make; // of a connection with the settings of one node: `(template, onEnd, at)`. `at`: to another node
  #templates = new Map(); // by address: the settings of the node
  #slots = []; // the address of each
  #finding; // a promise, while the slots are read
  #isOld = true; // whether the slots are read again before the next call
  #turn = 0;

  constructor(first, make) {
    this.#first = first;
    this.#make = make;
  }

  /** The address of the node that has this key. */
  async addressOf(key) {
    const slot = slotOf(key);
    if (this.#isOld || !this.#slots[slot]) await this.#find();
    const address = this.#slots[slot];
    if (!address) throw new Error(`no node of the cluster has the slot ${slot}`);
    return address;
  }

  /** The same if it is known now; else `undefined`. */
  knownAddressOf(key) {
    return this.#isOld ? undefined : this.#slots[slotOf(key)];
  }

  /** Makes connections to one of the nodes, the next time to another one. Each node gets the messages of all. */
  async some() {
    if (!this.#slots.length) await this.#find();
    const addresses = [...new Set(this.#slots.filter(Boolean))];
    return this.makeAt(addresses[this.#turn++ % addresses.length]);
  }

  makeAt(address) {
    const own = this.#templates.get(address);
    if (own) return (onEnd) => this.#make(own, onEnd);
    const [, host, port] = ADDRESS.exec(address);
    const [other] = this.#templates.values();
    return (onEnd) => this.#make(other, onEnd, { host, port: Number(port) });
  }

  /** Follows `MOVED slot address`, which the node at `from` replied. */
  follow(slot, address, from) {
    this.#slots[slot] = completed(address, from);
    this.#isOld = true;
  }

  /** Reads the slots again before the next call: a node did not answer, or is no master any more. */
  forget() {
    this.#isOld = true;
  }

  #find() {
    this.#finding ??= this.#read().finally(() => (this.#finding = undefined));
    return this.#finding;
  }

  async #read() {
    const addresses = [...new Set(this.#slots.filter(Boolean))];
    const known = addresses.map((address) => this.#ask(address));
    const slots = await Promise.any(known).catch(() => null);
    if (slots) {
      this.#slots = slots;
    } else {
      const found = await within(FIND_MS, this.#first(), true);
      this.#templates = found.templates;
      this.#slots = found.slots;
    }
    this.#isOld = false;
  }

  // The slots, as the node at this address knows them.
  async #ask(address) {
    const connection = this.makeAt(address)(() => {});
    try {
      const asked = connection.open().then(() => connection.sendCommand(['CLUSTER', 'SLOTS']));
      const slots = [];
      for (const [from, to, [host, port]] of await within(FIND_MS / 2, asked, true)) {
        for (let slot = from; slot <= to; slot++) slots[slot] = completed(`${host ?? ''}:${port}`, address);
      }
      if (!slots.length) throw new Error('the node knows no slots');
      return slots;
    } finally {
      connection.end();
    }
  }
}

/** An address without a host is on the host of the node that told it. */
function completed(address, from) {
  return address.startsWith(':') ? ADDRESS.exec(from)[1] + address : address;
}

module.exports = { Cluster, OneServer, completed };
