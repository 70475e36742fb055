// For `import`. The package exists once, so an error is the same class for `import` and `require`.
import luagate from './index.js';

export const {
  AboveLimitError,
  ClosedError,
  DeniedError,
  InvalidError,
  LimitMismatchError,
  LineFullError,
  LostError,
  Luagate,
  LuagateError,
  NoPermissionError,
  RevokedError,
  Ticket,
  TimedOutError,
  UnexpectedReplyError,
  UnreachableError,
  nameFrom,
} = luagate;
