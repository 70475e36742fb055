// The meaning of an error: whether the server replied it, and what to do.
const { NoPermissionError, UnexpectedReplyError } = require('./errors.js');
const files = require('./lua.js');

// What the errors of servers and proxies mean. The first row that fits counts; the last one fits all.
const ROWS = JSON.parse(files['errors.json']).errors;
const NO_LOGIN = /^(NOAUTH|WRONGPASS)\b|unauthenticated/; // the last one: before the login, a server accepts only short commands
const REFUSED = /^NOPERM\b|permissions to |ACL failure|can't run this command|can't access/;
const UNKNOWN = /unknown command/i;

const replied = new WeakSet(); // the errors of replies. Their classes tell nothing: a minifier renames them

/** Notes that the server replied with this error. */
function noteReply(error) {
  replied.add(error);
}

const isReply = (error) => replied.has(error);

function fits({ code, contains = '', is }, text) {
  if (code === undefined) return text.includes(contains) && (is === undefined || is === text);
  const words = text.split(' ');
  // Redis 6 puts other words before the error of a command in a script.
  const isOfCommand = text.startsWith('ERR Error running script');
  return words[0] === code || (isOfCommand && words.some((word) => word.replace(/^-/, '') === code));
}

const rowOf = (error) => ROWS.find((row) => fits(row, error.message));

/** Whether the same call is repeated: it was not answered, or is refused only for now. */
function isPassing(error) {
  if (error instanceof UnexpectedReplyError) return false;
  return !isReply(error) || rowOf(error).passes === 'yes';
}

const isMoved = (error) => isReply(error) && ['READONLY', 'REDIRECT'].includes(rowOf(error).code);
const redirections = new WeakMap(); // by error

/** Where another node of a cluster has the key: `{ slot, moved }`, or for this call only `{ slot, ask }`. */
function redirectionOf(error) {
  const [, word, slot, address] = (isReply(error) && /^(MOVED|ASK) (\d+) (\S+:\d+)/.exec(error.message)) || [];
  if (word === undefined) return undefined;
  if (!redirections.has(error)) redirections.set(error, { slot: Number(slot), [word.toLowerCase()]: address });
  return redirections.get(error);
}

const isUnknownCommand = (error) => isReply(error) && UNKNOWN.test(error.message);

/** The error for the caller. A refusal gets the ACL line to add, with this prefix of the keys and channels. */
function named(error, prefix) {
  const text = error.message.replace(/\.$/, '');
  if (!isReply(error)) return error;
  if (NO_LOGIN.test(text)) {
    const remedy = 'Correct the user name and the password of the client';
    return new NoPermissionError(`the server refused the login: ${text}. ${remedy}`, { cause: error });
  }
  if (!REFUSED.test(text)) return error;
  const user = /\bUser (\S+) has/i.exec(text)?.[1] ?? '<user>';
  const command = /'([^' ]+)' command/.exec(text)?.[1];
  const missing = / channel/.test(text) ? `&${prefix}:inbox:*` : command ? `+${command}` : `~${prefix}:*`;
  const remedy = `Run: ACL SETUSER ${user} ${missing}`;
  return new NoPermissionError(`the server's ACL refused a call: ${text}. ${remedy}`, { cause: error });
}

module.exports = { isMoved, isPassing, isReply, isUnknownCommand, named, noteReply, redirectionOf };
