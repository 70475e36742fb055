// Connections of the supported packages. A connection is opened once, and never used again after its end.
const { Cluster, OneServer } = require('./cluster.js');
const { InvalidError } = require('./errors.js');
const { withRealTimers } = require('./node.js');
const { noteReply } = require('./replies.js');
const { within } = require('./timers.js');

const CONNECT_MS = 2_000; // after this time without a connection, the attempt has failed. The packages would wait longer
const CODE = /^[A-Z][A-Z0-9_]+ /; // with which the errors of servers begin

/** A connection of one of the packages, over which a server answers. */
class Connection {
  isOver = false;
  scripts = new Set(); // the SHA-1s of those that the server has run on it

  /** Opens it. `promise` is that of the package. */
  async opened(promise) {
    try {
      await promise;
    } catch (error) {
      if (CODE.test(error.message) && error.code === undefined) noteReply(error); // the server refused the login
      throw error;
    }
  }

  /** The reply to a command. An error that comes while the connection is open is a reply. */
  async answered(promise) {
    try {
      return await promise;
    } catch (error) {
      if (!this.isOver) noteReply(error);
      throw error;
    }
  }
}

/** A connection of the package `redis`, with the settings of the given client. */
class NodeRedisConnection extends Connection {
  #client;
  #isSettled = false; // whether the attempt to connect has ended

  /** `at`: of another server, `{ host, port }`. */
  constructor(client, onEnd, at = {}) {
    super();
    const socket = {
      ...client.options?.socket,
      ...at,
      connectTimeout: 2 * CONNECT_MS,
      reconnectStrategy: false,
      socketTimeout: undefined,
    };
    const plain = { RESP: 2, maintNotifications: 'disabled', clientSideCache: undefined, emitInvalidate: false };
    const once = { disableOfflineQueue: true, commandsQueueMaxLength: undefined, pingInterval: undefined };
    this.#client = client.duplicate({ ...plain, ...once, socket, commandOptions: { timeout: undefined } });
    const broken = () => {
      this.#isSettled = true;
      this.end();
      onEnd();
    };
    const connected = () => {
      this.#isSettled = true;
      if (this.isOver) this.end();
    };
    this.#client.on('error', broken).on('end', onEnd).on('connect', connected);
    this.#client.unref();
  }

  open() {
    return this.opened(this.#client.connect());
  }

  sendCommand(args) {
    return this.answered(withRealTimers(() => this.#client.sendCommand(args)));
  }

  subscribe(channel, receive) {
    return this.answered(withRealTimers(() => this.#client.subscribe(channel, receive)));
  }

  end() {
    this.isOver = true;
    if (this.#isSettled) endOf(this.#client); // else redis 5.0 would connect all the same. This ends it then
  }
}

/** The error of a command without the arguments: `ioredis` adds them, and one may be a password or a secret. */
function withoutArguments(error) {
  if (error?.command) delete error.command.args;
  throw error;
}

/** A connection of the package `ioredis`, with the settings of the given client. */
class IoRedisConnection extends Connection {
  #client;
  #failure; // names the cause, which the error of `connect` does not

  /** `at`: of another server, `{ host, port }`. */
  constructor(client, onEnd, at = {}) {
    super();
    const once = { lazyConnect: true, retryStrategy: null, reconnectOnError: null, enableOfflineQueue: false };
    const plain = { protocol: 2, stringNumbers: false, keyPrefix: '', enableReadyCheck: false, autoResubscribe: false };
    const bounds = {
      connectTimeout: 2 * CONNECT_MS,
      commandTimeout: undefined,
      socketTimeout: undefined,
      disconnectTimeout: 1,
    };
    this.#client = client.duplicate({ ...once, ...plain, ...bounds, ...at, enableAutoPipelining: false });
    const ended = () => {
      this.isOver = true;
      onEnd();
    };
    this.#client.on('error', (error) => (this.#failure = error)).on('close', ended);
    this.#client.on('connect', () => this.#client.stream.unref());
  }

  open() {
    return this.opened(this.#client.connect().catch((error) => withoutArguments(this.#failure ?? error)));
  }

  sendCommand(args) {
    // The package refuses the command between the end of the stream and its event: this is no reply.
    if (!this.#client.stream?.writable) return Promise.reject(new Error('the connection broke'));
    return this.answered(this.#client.call(...args).catch(withoutArguments));
  }

  subscribe(channel, receive) {
    this.#client.on('message', (_, text) => receive(text));
    return this.answered(this.#client.subscribe(channel).catch(withoutArguments));
  }

  end() {
    if (this.isOver) return;
    this.isOver = true;
    this.#client.disconnect();
  }
}

function endOf(client) {
  try {
    client.destroy();
  } catch {
    // It has ended already.
  }
}

/** The nodes of a cluster of the package `redis`: `slots`, the address of each, and `templates`, clients with their settings. */
async function nodesOfRedis(client) {
  const cluster = client.duplicate({ minimizeConnections: true, useReplicas: false }).on('error', () => {});
  await cluster.connect();
  const slots = cluster.slots.map((slot) => slot?.master.address);
  const templates = new Map();
  for (const node of cluster.masters) {
    cluster.nodeClient(node).catch(() => {}); // the only way to its settings
    const template = node.client.removeAllListeners('error').on('error', () => {}); // redis 5.0 prints its errors
    template.on('connect', () => endOf(template)); // redis 5.0 connects also after `destroy`
    templates.set(node.address, template);
  }
  cluster.destroy();
  return { slots, templates };
}

/** The same of a cluster of the package `ioredis`. */
async function nodesOfIoRedis(client) {
  const once = { lazyConnect: true, enableReadyCheck: false, clusterRetryStrategy: null, slotsRefreshInterval: undefined };
  const cluster = client.duplicate([], once).on('error', () => {});
  try {
    await cluster.connect();
    const slots = cluster.slots.map((keys) => keys?.[0]);
    const addresses = [...new Set(slots.filter(Boolean))];
    const templates = addresses.map((address) => [address, cluster.connectionPool.getInstanceByKey(address)]);
    return { slots, templates: new Map(templates) };
  } finally {
    cluster.disconnect();
  }
}

/** The server or the cluster of this client. Its connections have the settings of the client. */
function serversOf(client) {
  if (typeof client?.duplicate === 'function') {
    if (typeof client.createPool === 'function') {
      checkDatabase(client.options);
      return new OneServer((onEnd) => new NodeRedisConnection(client, onEnd));
    }
    if (typeof client.call === 'function') {
      const make = (of, onEnd, at) => new IoRedisConnection(of, onEnd, at);
      if (client.isCluster) return new Cluster(() => nodesOfIoRedis(client), make);
      return new OneServer((onEnd) => make(client, onEnd));
    }
    if (typeof client.nodeClient === 'function') {
      return new Cluster(
        () => nodesOfRedis(client),
        (of, onEnd, at) => new NodeRedisConnection(of, onEnd, at),
      );
    }
  }
  const got = client?.constructor?.name ?? String(client);
  const ofRedis = '`createClient({ url })` or `createCluster({ rootNodes })` of the package redis 5 or 6';
  const accepted = `${ofRedis}, or \`new Redis(url)\` or \`new Redis.Cluster(nodes)\` of the package ioredis 5 or 6`;
  throw new InvalidError(`client: got ${got}. Accepted: ${accepted}. Pools and sentinels of redis are not accepted`);
}

// The package `redis` ignores `?db=2`, and uses the database 0. The packages of other languages use 2, and so another lock.
function checkDatabase({ url, database } = {}) {
  if (database === undefined && /[?&]db=/.test(url ?? '')) {
    throw new InvalidError('client: got a URL with ?db=, which `createClient` ignores. Accepted: redis://host/2');
  }
}

/** Makes a connection and opens it within this time. It does not keep the process alive: the calls that need it do. */
async function connect(make, onEnd, ms) {
  const connection = make(onEnd);
  try {
    await within(Math.min(ms, CONNECT_MS), connection.open(), true);
    return connection;
  } catch (error) {
    connection.end();
    throw error;
  }
}

module.exports = { connect, serversOf };
