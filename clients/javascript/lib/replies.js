// The meaning of an error: whether the server replied it, and what to do.
import { readFileSync } from 'node:fs';
import { NoPermissionError, UnexpectedReplyError } from './errors.js';

// What the errors of servers and proxies mean. The first row that fits counts; the last one fits all.
const ROWS = JSON.parse(readFileSync(new URL('../lua/errors.json', import.meta.url), 'utf8')).errors;
const REFUSED = /^(NOPERM|NOAUTH|WRONGPASS)\b|permissions to |ACL failure|can't run this command|can't access/;
const UNKNOWN = /unknown command/i;

/** Whether the server replied with this error. Without an import: a package that is installed as a link finds no other one. */
export function isReply(error) {
  for (let one = error; one; one = Object.getPrototypeOf(one)) {
    if (one.constructor?.name === 'ErrorReply' || one.constructor?.name === 'ReplyError') return true;
  }
  return false;
}

function fits({ code, contains = '', is }, text) {
  if (code === undefined) return text.includes(contains) && (is === undefined || is === text);
  const words = text.split(' ');
  // Redis 6 puts other words before the error of a command in a script.
  const isOfCommand = text.startsWith('ERR Error running script');
  return words[0] === code || (isOfCommand && words.some((word) => word.replace(/^-/, '') === code));
}

const rowOf = (error) => ROWS.find((row) => fits(row, error.message));

/** Whether the same call is repeated: it was not answered, or is refused only for now. */
export function isPassing(error) {
  if (error instanceof UnexpectedReplyError) return false;
  return !isReply(error) || rowOf(error).passes === 'yes';
}

export const isMoved = (error) => isReply(error) && ['READONLY', 'REDIRECT'].includes(rowOf(error).code);
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
