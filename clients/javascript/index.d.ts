/** A client of the package `redis` 5 or 6, which `createClient` returned. It need not be connected. */
export interface NodeRedis {
  duplicate(...overrides: any[]): any;
  createPool(...options: any[]): any;
}

/** A client of the package `ioredis` 5 or 6, which `new Redis` returned. It need not be connected. */
export interface IoRedis {
  duplicate(...override: any[]): any;
  call(...args: any[]): any;
  readonly stream: any;
}

/** A cluster of the package `redis` 5 or 6, which `createCluster` returned. It need not be connected. */
export interface NodeRedisCluster {
  duplicate(...overrides: any[]): any;
  nodeClient(node: any): any;
}

/** A cluster of the package `ioredis` 5 or 6, which `new Redis.Cluster` returned. It need not be connected. */
export interface IoRedisCluster {
  duplicate(...overrides: any[]): any;
  nodes(...role: any[]): any[];
  readonly isCluster: boolean;
}

/** The settings of a gate. */
export interface LuagateOptions {
  /** The beginning of all keys and channels. Default: `luagate`. */
  prefix?: string;
  /** The path of another folder `lua/`. */
  scripts?: string;
  /** After this time in ms, a call that does not wait in line ends with an `UnreachableError`. Default: 4,000. */
  callTimeout?: number;
  /** The label of all ids, unless a semaphore has its own. */
  label?: string;
  /**
   * Is called for each failed renewal, each failed release in the background, and each lost permit. `warning.cause` is the
   * error of the call. Default: nothing is reported.
   */
  onWarning?: (warning: Error) => void;
}

/** The settings of a semaphore. All durations are in milliseconds. */
export interface SemaphoreOptions {
  /**
   * The duration of a lease: 1 or more, or `'permanent'`. Without `autoRenew` a permit ends after this time unless `refresh` is
   * called. Default: 30,000, renewed in the background until the permit is released.
   */
  lease?: number | 'permanent';
  /** Renews the lease in the background until the permit is released. */
  autoRenew?: boolean;
  /** If this number of callers or more wait in line, `acquire` rejects with a `LineFullError`. 0, the default: no bound. */
  maxWaiting?: number;
  /** A permit that is released earlier than this after its grant stays in use until then. The lease is not shorter. 0: none. */
  atLeast?: number;
  /**
   * A call joins the line as if it had come that much earlier, 0 to 86,400,000 (a day). Only calls that come within the head
   * start after a waiter can overtake it. Default: 0.
   */
  headStart?: number;
  /** Begins the ids, as in `<label>/<uuid>`: 1 to 163 bytes without white space and control characters. */
  label?: string;
  /** Refuses a permit with a `LimitMismatchError` if the limit in force is another one. */
  strict?: boolean;
  /** Is called once when a permit is lost, not when it is released. */
  onLost?: (error: LostError) => void;
}

/** How long a call waits in line. */
export interface WaitOptions {
  /** In milliseconds, 1 or more. 0: does not wait. Without it the call waits for ever. */
  timeout?: number;
  /** Ends the wait with the signal's reason when it is aborted. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends WaitOptions {
  /** The number of permits; default 1. Of a reader-writer lock, leave it out. */
  permits?: number;
}

/** The settings of a block. */
export interface UseOptions {
  /**
   * If the permits were lost before the end of the block, `use` rejects with a `LostError`. It waits for the server to answer this, and
   * for the reply to the release. Default: `false`.
   */
  check?: boolean;
}

/** What permits of one and of several semaphores have in common. */
interface Held extends AsyncDisposable {
  /** Milliseconds until the first lease ends, by this machine's clock: never longer than on the server. */
  remaining(): number;
  /** Whether another client may hold it by now. Sends no call. */
  readonly isLost: boolean;
  /** Is aborted with a `LostError` when a permit is lost, not when it is released. */
  readonly signal: AbortSignal;
  /** Starts the leases anew. Rejects with a `LostError` if a permit is lost, or with an `UnreachableError`. */
  refresh(): Promise<void>;
  /**
   * Releases all permits. Resolves to whether all were still held; a second call resolves to `false`. After an
   * `UnreachableError` the release goes on in the background.
   */
  release(): Promise<boolean>;
}

/** A place in line. Of two waiters, the one with the smaller ticket is served first. */
export class Ticket {
  #number;
  /** The ticket with this text, which `toString` returned. Throws an `InvalidError` for a number, and for another text. */
  constructor(text: string);
  /** Below 0 if `a` is served before `b`, for `sort`. */
  static compare(a: Ticket, b: Ticket): number;
  /** Its text, which can be stored. */
  toString(): string;
  toJSON(): string;
}

/** A held permit. The end of an `await using` releases it without waiting for the reply, and rejects for no failed release. */
export interface Permit extends Held {
  /** The id of the holder. */
  readonly id: string;
  /** The number of permits. */
  readonly permits: number;
  /**
   * A number that is higher than that of every earlier grant, unless the server's clock goes back. Pass it to what the permit
   * protects.
   */
  readonly fence: number;
  /** The ticket with which it waited in line; `null`: it did not wait. */
  readonly ticket: Ticket | null;
  /** The limit that was in force at the grant. */
  readonly limit: number;
  /** The end of the lease in milliseconds of the server's clock; -1: never. */
  readonly expiresAt: number;
  /** Keeps one permit and releases the others: a writer becomes a reader. Rejects with a `LostError`. */
  downgrade(): Promise<void>;
}

/** Held permits of several semaphores. The end of an `await using` releases all. */
export interface Permits extends Held {
  /** In the order of the request. */
  readonly permits: Permit[];
  /** The fence of each semaphore. */
  readonly fences: number[];
}

/** The state of a semaphore. */
export interface Inspection {
  /** The limit in force; `null`: none is stored. */
  limit: number | null;
  /** Whether `resize` set the limit. Such a limit does not expire. */
  pinned: boolean;
  /** The number of permits in use. */
  inUse: number;
  /** The number of callers in line. */
  waiterCount: number;
  /** `remaining`: ms until the lease ends; `null`: never. `coolingDown`: released before its minimum hold ended. */
  holders: Array<{
    id: string;
    label: string | null;
    permits: number;
    fence: number;
    remaining: number | null;
    coolingDown: boolean;
  }>;
  /** In the order in which they will be granted. */
  waiters: Array<{ id: string; label: string | null; permits: number; ticket: Ticket }>;
}

/** A counting semaphore or a lock. Nothing is re-entrant. */
export interface Semaphore {
  /**
   * Resolves to permits at once, or rejects with a `DeniedError`. Does not wait: it ends within `callTimeout`. After an error
   * nothing stays held.
   */
  tryAcquire(options?: { permits?: number }): Promise<Permit>;
  /**
   * Waits in line for permits: first come, first served. Ends 100 ms after the timeout at the latest, also if the server does
   * not answer. Rejects with a `TimedOutError`, a `LineFullError`, a `RevokedError`, or the reason of the signal. After an
   * error nothing stays held: the release may go on in the background.
   */
  acquire(options?: AcquireOptions): Promise<Permit>;
  /**
   * Acquires permits, runs `work`, and releases them at its end. Resolves to what `work` returns, without waiting for the reply to
   * the release. A failed release does not replace this, and goes on in the background.
   */
  use<T>(options: AcquireOptions & UseOptions, work: (permit: Permit) => T | Promise<T>): Promise<T>;
  /** Sets the limit for all callers, 1 to 2,147,483,647. It does not expire. A lower limit takes no permit away. */
  resize(limit: number): Promise<{ old: number; new: number; inUse: number }>;
  /** Reads the holders and the waiters. */
  inspect(): Promise<Inspection>;
  /** Takes the permits or the place in line away from this id. Resolves to whether it held or waited. */
  revoke(id: string): Promise<boolean>;
}

/** A lock that many readers or one writer hold. Readers and writers wait in one line. */
export interface RwLock {
  readonly read: Semaphore;
  readonly write: Semaphore;
}

/** Grants permits of several semaphores, all or none. */
export interface Several {
  /**
   * Permits of all at once, or a `DeniedError` of the first one that refuses. The names must share a group, as in
   * `{market}:user:7` and `{market}:total`. Ignores `headStart`.
   */
  tryAcquire(): Promise<Permits>;
  /**
   * Waits in line for permits of all, one semaphore after the other: by limit, the smallest first, then by key. Permits that
   * are already held are renewed meanwhile. Rejects as `acquire` of a semaphore, and with a `LostError`. After an error
   * nothing stays held.
   */
  acquire(options?: WaitOptions): Promise<Permits>;
  /** Acquires permits of all, runs `work`, and releases them at its end, as `use` of a semaphore. */
  use<T>(options: WaitOptions & UseOptions, work: (permits: Permits) => T | Promise<T>): Promise<T>;
}

/** Numbers of events since the gate was made. None decreases. */
export interface Counters {
  /** Permits that were granted, at once or after a wait. Each semaphore of `several` counts, also if its permit is given back. */
  readonly granted: number;
  /** Callers that got a `DeniedError`, a `TimedOutError` or a `LineFullError`. */
  readonly denied: number;
  /** Those of `denied` that got a `LineFullError`. */
  readonly lineFull: number;
  /** Those of `granted` that waited in line first. */
  readonly waited: number;
  /**
   * Permits that were found lost while this process held them, each once: by `remaining` or `isLost` after the end of the lease, by a
   * refused refresh or renewal, or by a release that found nothing. If a release was repeated, the permit does not count.
   */
  readonly lost: number;
  /** Renewals in the background, one for each permit and each time. Calls of `refresh` do not count. */
  readonly renewed: number;
  /** Connections and subscriptions that replaced one that broke or did not answer in time. */
  readonly reconnects: number;
}

/** Semaphores and locks on one server, or on a cluster. */
export class Luagate {
  /**
   * @param client a client or a cluster of the package `redis` or `ioredis`. Calls and messages use two connections of their own,
   *   with the settings of the client; calls to a cluster use one for each node. They are opened when they are needed.
   */
  constructor(client: NodeRedis | IoRedis | NodeRedisCluster | IoRedisCluster, options?: LuagateOptions);
  /** At most `limit` permits are held at a time. */
  semaphore(name: string, limit: number, options?: SemaphoreOptions): Semaphore;
  /** A lock: a semaphore with one permit. */
  mutex(name: string, options?: SemaphoreOptions): Semaphore;
  /** A lock for readers and writers. */
  rwlock(name: string, options?: SemaphoreOptions): RwLock;
  /** Permits of several semaphores together, all or none: `[[semaphore, permits], ...]`; default 1 permit. */
  several(wants: Array<[semaphore: Semaphore, permits?: number]>): Several;
  /** What the gate has counted until now. Sends no call. */
  counters(): Counters;
  /**
   * Ends all waits with a `ClosedError`, and then the connections, within a second. Permits stay held until their leases end,
   * and are no longer renewed.
   */
  close(): Promise<void>;
}

/** The base of all errors of this package. An error of the server that has no class here is passed on as it is. */
export class LuagateError extends Error {}

/** Not granted, because of how the semaphore was in use. */
declare class UsageError extends LuagateError {
  /** The key that stands for the semaphore. */
  readonly semaphore: string;
  /** The number of permits in use. */
  readonly inUse: number;
  /** The limit in force. */
  readonly limit: number;
  /** The number of callers in line. */
  readonly waiting: number;
  /** Milliseconds until the next lease ends, unless it is renewed; `null`: never. */
  readonly nextExpiry: number | null;
  /** Estimates the time in ms until a permit is free, if a permit is held for `hold` ms: at least 1. */
  retryAfter(hold: number): number;
}

/** The permits were not granted at once. */
export class DeniedError extends UsageError {}

/** The line has `maxWaiting` waiters or more. */
export class LineFullError extends UsageError {}

/**
 * The permits were not granted within the timeout. `cause`: the last error, if the server did not answer. The numbers are those
 * of the last reply. `nextExpiry` can also be `null` because that reply did not contain it. Without any reply, `limit` is 0, and
 * nothing is known.
 */
export class TimedOutError extends UsageError {}

/** More permits than the limit in force: waiting cannot help. */
export class AboveLimitError extends LuagateError {
  /** The limit in force. */
  readonly limit: number;
}

/** The semaphore is `strict`, and the limit in force is another one. */
export class LimitMismatchError extends LuagateError {
  /** The limit in force. */
  readonly limit: number;
}

/** The permit is no longer held: its lease ended, or it was released or revoked. */
export class LostError extends LuagateError {}

/** Another client removed this waiter from the line. */
export class RevokedError extends LuagateError {}

/** The gate was closed. */
export class ClosedError extends LuagateError {}

/** An argument is not valid. Nothing was sent. */
export class InvalidError extends LuagateError {}

/** The server's ACL or its password refuses this client. The message names the ACL line to add. */
export class NoPermissionError extends LuagateError {}

/** The scripts never return this reply: a proxy may have changed it. Whether the call had an effect is unknown. */
export class UnexpectedReplyError extends LuagateError {}

/** No connection to the server, or no reply in time. */
export class UnreachableError extends LuagateError {}

/**
 * Makes a valid name of any text: a URL, a path, a text of any length. The same text has the same name in all languages. A valid name
 * is returned unchanged. In another text, braces become parentheses, and white space and control characters become `_`. The result
 * is cut to 200 bytes, of which the last are `~` and the SHA-1 of the text. A group, as in `{group}:anything`, stays if it is valid
 * and has at most 100 bytes.
 */
export function nameFrom(text: string): string;
