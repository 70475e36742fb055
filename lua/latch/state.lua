-- Part: the stored state of the latch. Writes nothing.
-- In   call, now
-- Out  latch, waiters (the keys), fields, waiting (their sizes), count, counted, expiry, is_open
--
-- The latch hash has one field that is not an id; its name contains a space, which no id can:
--   'the state'   count counted expiry, as numbers
-- and, until the latch opens, a field for each id that counted down. An open latch does not need them.
if #KEYS < 2 then -- there is nothing to read
  return redis.error_reply('LUAGATE keys: wrong number of keys. Accepted: 2: latch waiters')
end
local latch, waiters = KEYS[1], KEYS[2]
if latch == waiters then
  return redis.error_reply('LUAGATE keys: one key twice. Accepted: 2 different keys: latch waiters')
end

local fields = call('HLEN', latch)
local waiting = call('ZCARD', waiters)

local count = 0     -- how many ids must count down; 0: none is stored
local counted = 0   -- how many ids have counted down
local expiry = now  -- when the keys expire
local a, b, c = string.match(call('HGET', latch, 'the state') or '', '^(%d+) (%d+) (%d+)$')
if a then count, counted, expiry = tonumber(a), tonumber(b), tonumber(c) end

-- If state and ids disagree, only the stored ids count: the latch may open late, never early.
if counted < count then counted = math.min(counted, fields - 1) end

local function is_open()
  return count > 0 and counted >= count
end
