-- Part: reads what the semaphore keeps beside its permits, and the record of the id in ARGV[1].
--
-- The meta hash has a field of its own, 'the state' (no id has a space), and one for each id, its record. They are numbers as
-- struct packs them, which a script reads and writes several times faster than digits:
--   a holder      fence, or fence permits when it holds more than one
--   a waiter      permits lease_ms patience_until ask_at, and its inbox behind them
--   'the state'   limit        0: none is stored
--                 extra        what the holders weigh beyond one each
--                 next_end     no lease ends before this
--                 last_end     no lease ends after this, but for permanent ones
--                 expiry       when the keys go; 0: they stay
--                 last_fence   the last fence or ticket that was given
--                 pinned       1: the limit was set by resize
--                 gate         0: open; 2: open, and nobody waits, so the plain cases do not look; 1: closed, since keys
--                              were lost: nothing is granted while a lease that is still known runs
local meta, holders, queue = unpack(KEYS, 1, 3)
if not queue then return redis.error_reply('LUAGATE keys: takes 3: meta holders queue') end -- there is nothing to read
if meta == holders or meta == queue or holders == queue then
  return redis.error_reply('LUAGATE keys: takes 3, each once: meta holders queue')
end
local stored = call('HMGET', meta, 'the state', ARGV[1] or '')
local state, record = stored[1], stored[2]
local held, waiting, fields = nil, nil, nil -- how many hold, wait, and are in meta, once they are counted

local STATE = '<ddddddBB' -- 8 bytes a number, 1 a small one: 50
local is_known = state and #state == 50
local limit, extra, next_end, last_end, expiry, last_fence, pinned, gate =
  struct.unpack(STATE, is_known and state or string.rep('\0', 50))
if not is_known then next_end, expiry = math.huge, now end
