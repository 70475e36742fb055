export { Luagate } from './lib/luagate.js';
export { LineFullError, PermitLostError, WaitRevokedError, WaitTimeoutError } from './lib/errors.js';
