// The meaning of an error: whether the server replied it, and what to do.
import { NoPermissionError, UnexpectedReplyError } from './errors.js';

// Nothing was run, and the same call can succeed a little later.
const PASSING = /\b(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY)\b|max number of clients/;
const REFUSED = /^(NOPERM|NOAUTH|WRONGPASS)\b|permissions to |ACL failure|can't run this command|can't access/;
const UNKNOWN = /unknown command/i;

/** Whether the server replied with this error. Without an import: a package that is installed as a link finds no other one. */
export function isReply(error) {
  for (let one = error; one; one = Object.getPrototypeOf(one)) {
    if (one.constructor?.name === 'ErrorReply' || one.constructor?.name === 'ReplyError') return true;
  }
  return false;
}

/** Whether the same call is repeated: it was not answered, or is refused only for now. */
export function isPassing(error) {
  if (error instanceof UnexpectedReplyError) return false;
  return !isReply(error) || PASSING.test(error.message);
}

export const isMoved = (error) => isReply(error) && /\bREADONLY\b/.test(error.message);
export const isUnknownCommand = (error) => isReply(error) && UNKNOWN.test(error.message);

/** The error for the caller. A refusal gets the ACL line to add, with this prefix of the keys and channels. */
export function named(error, prefix) {
  if (!isReply(error) || !REFUSED.test(error.message)) return error;
  const text = error.message;
  if (/^(NOAUTH|WRONGPASS)\b/.test(text)) {
    const remedy = 'Correct the user name and the password of the client';
    return new NoPermissionError(`the server refused the login: ${text}. ${remedy}`, { cause: error });
  }
  const user = /\bUser (\S+) has/i.exec(text)?.[1] ?? '<user>';
  const command = /'([^' ]+)' command/.exec(text)?.[1];
  const missing = / channel/.test(text) ? `&${prefix}:inbox:*` : command ? `+${command}` : `~${prefix}:*`;
  const remedy = `Run: ACL SETUSER ${user} ${missing}`;
  return new NoPermissionError(`the server's ACL refused a call: ${text}. ${remedy}`, { cause: error });
}
