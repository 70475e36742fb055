-- Part: what the semaphore keeps beside its permits, and the record of the id in ARGV[1]. Writes nothing.
--
-- The meta hash has two fields of its own; their names hold a space, which no id can:
--   'the state'   limit extra next_end last_end expiry pinned closed, as numbers; written only when one of them changes
--   'last fence'  the last fence or ticket that was given
-- and a record for each id, which is
--   <fence>, or <fence> <permits> when it holds more than one
--   w <permits> <lease_ms> <patience_until> <ask_at> <inbox> while it waits
if #KEYS < 3 then return redis.error_reply('LUAGATE keys: takes 3: meta holders queue') end -- there is nothing to read
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if meta == holders or meta == queue or holders == queue then
  return redis.error_reply('LUAGATE keys: takes 3, each once: meta holders queue')
end
local NEVER = 9e15 -- later than any time in ms

local stored = redis.call('HMGET', meta, 'the state', 'last fence', ARGV[1] or '')
local record = stored[3]
local last_fence = tonumber(stored[2] or 0)

local limit = 0          -- 0: none is stored
local extra = 0          -- what the holders weigh beyond one each
local next_end = NEVER   -- no lease ends before this
local last_end = 0       -- no lease ends after this, but for permanent ones
local expiry = now       -- when the keys go; 0: they stay
local pinned = false     -- the limit was set by resize
local closed = false     -- keys were lost: nothing is granted while a lease that is still known runs
local readable = not stored[1]
if stored[1] then
  local a, b, c, d, e, f, g = string.match(stored[1], '^(%d+) (%d+) (%S+) (%d+) (%d+) ([01]) ([01])$')
  if a and stored[2] then
    limit, extra, next_end, last_end, expiry = tonumber(a), tonumber(b), tonumber(c), tonumber(d), tonumber(e)
    pinned, closed, readable = f == '1', g == '1', true
  end
end

-- What a record says of a holder: its fence and its permits. Nothing for a waiter.
local function holding(text)
  local fence, permits = string.match(text or '', '^(%d+) ?(%d*)$')
  if fence then return tonumber(fence), tonumber(permits) or 1 end
end

-- A score as a time in a reply: -1 stands for never.
local function as_time(score)
  return score == 'inf' and -1 or tonumber(score)
end
