// The errors of this package. Errors of the server and of the connection are those of `redis`.

/** The permits were not granted within the timeout. */
export class WaitTimeoutError extends Error {
  name = 'WaitTimeoutError';
}

/** The line has `maxWaiting` waiters or more. `waiting` is their number. */
export class LineFullError extends Error {
  name = 'LineFullError';

  constructor(message, waiting) {
    super(message);
    this.waiting = waiting;
  }
}

/** Another client removed this waiter from the line. */
export class WaitRevokedError extends Error {
  name = 'WaitRevokedError';
}

/** The permit is no longer held: its lease ended, or it was released or revoked. */
export class PermitLostError extends Error {
  name = 'PermitLostError';
}
