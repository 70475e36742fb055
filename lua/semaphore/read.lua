-- Part: reads what the semaphore keeps beside its permits, and the record of the id in ARGV[1].
--
-- The meta hash has a field of its own, 'the state' (no id has a space), and one for each id, its record. They are numbers as
-- struct packs them, which a script reads and writes several times faster than digits:
--   'the state'   limit extra next_end last_end expiry last_fence pinned closed
--   a holder      fence, or fence permits when it holds more than one
--   a waiter      permits lease_ms patience_until ask_at, and its inbox behind them
if #KEYS < 3 then return redis.error_reply('LUAGATE keys: takes 3: meta holders queue') end -- there is nothing to read
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if meta == holders or meta == queue or holders == queue then
  return redis.error_reply('LUAGATE keys: takes 3, each once: meta holders queue')
end
local stored = call('HMGET', meta, 'the state', ARGV[1] or '')
local state, record = stored[1], stored[2]
local STATE = '<ddddddBB' -- 8 bytes a number, 1 a yes or no: 50
local held, waiting, fields = false, false, false -- how many hold, wait, and are in meta, once they are counted

local NEVER = math.huge
local limit = 0          -- 0: none is stored
local extra = 0          -- what the holders weigh beyond one each
local next_end = NEVER   -- no lease ends before this
local last_end = 0       -- no lease ends after this, but for permanent ones
local expiry = now       -- when the keys go; 0: they stay
local last_fence = 0     -- the last fence or ticket that was given
local pinned = 0         -- 1: the limit was set by resize
local closed = 0         -- 1: keys were lost, and nothing is granted while a lease that is still known runs
local readable = not state or #state == 50
if state and readable then
  limit, extra, next_end, last_end, expiry, last_fence, pinned, closed = struct.unpack(STATE, state)
end
pinned, closed = pinned == 1, closed == 1
