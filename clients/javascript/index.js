export { Luagate } from './lib/luagate.js';
export {
  AboveLimitError,
  ClosedError,
  DeniedError,
  InvalidError,
  LimitMismatchError,
  LineFullError,
  LostError,
  LuagateError,
  NoPermissionError,
  RevokedError,
  TimedOutError,
  UnexpectedReplyError,
  UnreachableError,
} from './lib/errors.js';
export { Ticket } from './lib/ticket.js';
