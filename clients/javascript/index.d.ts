/** The methods of a connected client of the package `redis` that this package calls. */
export interface Redis {
  sendCommand(args: string[]): Promise<unknown>;
  publish(channel: string, message: string): Promise<unknown>;
  duplicate(): unknown;
  withTypeMapping(mapping: Record<string, never>): unknown;
}

/** The settings of a semaphore. All durations are in milliseconds. */
export interface SemaphoreOptions {
  /**
   * The duration of a lease; 0: permanent. Without `autoRenew` a permit ends after this time unless `refresh` is called.
   * Default: 30,000, renewed in the background until the permit is released.
   */
  lease?: number;
  /** Renews the lease in the background until the permit is released. */
  autoRenew?: boolean;
  /** If this number of callers or more wait in line, `acquire` rejects with a `LineFullError`. 0, the default: no bound. */
  maxWaiting?: number;
  /** A permit that is released earlier than this after its grant stays in use until then. The lease is not shorter. */
  atLeast?: number;
  /**
   * A call joins the line as if it had come that much earlier, 0 to 86,400,000 (a day). Only calls that come within the head
   * start after a waiter can overtake it. Default: 0.
   */
  headStart?: number;
}

/** How long a call waits in line. */
export interface WaitOptions {
  /** In milliseconds. Default: no bound. */
  timeout?: number;
  /** Ends the wait with the signal's reason when it is aborted. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends WaitOptions {
  /** The number of permits; default 1. */
  permits?: number;
}

/** What permits of one and of several semaphores have in common. */
interface Held extends AsyncDisposable {
  /** Milliseconds until the first lease ends, by this machine's clock: never longer than on the server. */
  remaining(): number;
  /** Whether another client may hold it by now. Sends no call. */
  readonly isLost: boolean;
  /** Is aborted with a `PermitLostError` when a permit is lost, not when it is released. */
  readonly signal: AbortSignal;
  /** Starts the leases anew. Rejects with a `PermitLostError` if a permit is lost. */
  refresh(): Promise<void>;
  /** Releases all permits. Resolves to whether all were still held. A second call does no harm. */
  release(): Promise<boolean>;
}

/** A held permit. The end of an `await using` releases it. */
export interface Permit extends Held {
  /** The id of the holder. */
  readonly id: string;
  /** The number of permits. */
  readonly permits: number;
  /** A number that is higher than that of every earlier grant. Pass it to what the permit protects. */
  readonly fence: number;
  /** The ticket with which it waited in line; 0: it did not wait. */
  readonly ticket: number;
  /** The end of the lease in milliseconds of the server's clock; -1: never. */
  readonly expiresAt: number;
}

/** Held permits of several semaphores. The end of an `await using` releases all. */
export interface Permits extends Held {
  /** In the order of the request. */
  readonly permits: Permit[];
  /** The fence of each semaphore. */
  readonly fences: number[];
}

/** A counting semaphore or, with a limit of 1, a lock. Nothing is re-entrant. */
export interface Semaphore {
  /** Resolves to permits at once, or to `null`. Does not wait. */
  tryAcquire(options?: { permits?: number }): Promise<Permit | null>;
  /**
   * Waits in line for permits: first come, first served. Rejects with a `WaitTimeoutError`, a `LineFullError` or a
   * `WaitRevokedError`. After an error nothing stays held.
   */
  acquire(options?: AcquireOptions): Promise<Permit>;
  /** Acquires permits, runs `work`, and releases them at its end. Resolves to what `work` returns. */
  use<T>(options: AcquireOptions, work: (permit: Permit) => T | Promise<T>): Promise<T>;
}

/** Grants permits of several semaphores, all or none. */
export interface Several {
  /**
   * Permits of all at once, or `null`. The names must share a group, as in `{market}:user:7` and `{market}:total`. Ignores
   * `headStart`.
   */
  tryAcquire(): Promise<Permits | null>;
  /**
   * Waits in line for permits of all, one semaphore after the other: by limit, the smallest first, then by key. Permits that
   * are already held are renewed meanwhile. Rejects as `acquire` of a semaphore, and with a `PermitLostError`. After an error
   * nothing stays held.
   */
  acquire(options?: WaitOptions): Promise<Permits>;
  /** Acquires permits of all, runs `work`, and releases them at its end. Resolves to what `work` returns. */
  use<T>(options: WaitOptions, work: (permits: Permits) => T | Promise<T>): Promise<T>;
}

/** Semaphores and mutexes on one server. */
export class Luagate {
  /**
   * @param redis a connected client of the package `redis`
   * @param options `prefix` begins all keys, default `luagate`; `scripts` is the path of another folder `lua/`
   */
  constructor(redis: Redis, options?: { prefix?: string; scripts?: string });
  /** At most `limit` permits are held at a time. */
  semaphore(name: string, limit: number, options?: SemaphoreOptions): Semaphore;
  /** A lock: a semaphore with one permit. */
  mutex(name: string, options?: SemaphoreOptions): Semaphore;
  /** Permits of several semaphores together, all or none: `[[semaphore, permits], ...]`. */
  several(wants: Array<[semaphore: Semaphore, permits: number]>): Several;
  /** Ends the subscription and the renewal. Permits stay held until they are released or their leases end. */
  close(): void;
}

/** The permits were not granted within the timeout. */
export class WaitTimeoutError extends Error {}

/** The line has `maxWaiting` waiters or more. */
export class LineFullError extends Error {
  /** The number of waiters. */
  readonly waiting: number;
}

/** Another client removed this waiter from the line. */
export class WaitRevokedError extends Error {}

/** The permit is no longer held: its lease ended, or it was released or revoked. */
export class PermitLostError extends Error {}
