-- semaphore/refresh before messages were signed: its parts joined. SHA-1 from the next line on: 09c3256dab54a6a5a997d6d150db11300acef03c
-- Part: checks of arguments. The first problem found is the reply, and it is given before anything is written.
local problem

local function refuse(text)
  problem = problem or 'LUAGATE ' .. text
end

-- ARGV[at] as a number: decimal digits and nothing else (tonumber alone takes '0x3', '1e0' and ' 2 ').
local function number(at, name, least, most)
  local text = ARGV[at]
  if text == '0' and least == 0 then return 0 end
  local value = text and string.find(text, '^%d+$') and tonumber(text)
  if not value or value < least or value > most then
    refuse(string.format('%s: takes %.0f to %.0f, in decimal digits', name, least, most))
    return least
  end
  return value
end

-- ARGV[at] as a word: 1 to `most` bytes, none of them white space or a control character.
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not string.find(text, '^[!-~\128-\255]+$') then
    refuse(name .. ': takes 1 to ' .. most .. ' bytes without white space or control characters')
  end
  return text
end

-- How many keys and arguments there are, so that a client that forgot one is told which there should be.
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: takes ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then refuse('arguments: takes ' .. count .. ': ' .. arguments) end
end
-- Part: the server's time, asked for once: before Redis 7.2 it moves while a script runs.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) -- ms
-- Part: what the semaphore keeps beside its permits, and the record of the id in ARGV[1]. Writes nothing.
--
-- The meta hash has two fields of its own; their names hold a space, which no id can:
--   'the state'   limit extra next_end last_end expiry pinned closed, as numbers; written only when one of them changes
--   'last fence'  the last fence or ticket that was given
-- and a record for each id, which is
--   <fence>, or <fence> <permits> when it holds more than one
--   w <permits> <lease_ms> <patience_until> <ask_at> <inbox> while it waits
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
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
-- Part: what goes with every change of a lease: the bounds on all leases, the TTL, the text of the state.
local changed = false -- 'the state' is to be written
local grown = false   -- the keys' TTL is to be set
local wrote = false   -- this script has written, so nothing is refused any more when memory is full

local function state_text()
  changed = false
  return limit .. ' ' .. extra .. ' ' .. next_end .. ' ' .. last_end .. ' ' .. expiry
    .. (pinned and ' 1' or ' 0') .. (closed and ' 1' or ' 0')
end

local function set_ttl(key)
  wrote = true
  if expiry == 0 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, expiry) end
end

-- Keeps the bounds and the TTL ahead of a lease that ends at `ends`. Up to a second in advance, so that few grants
-- write the state: what looks lost later may keep the gate closed for that much longer, never shorter.
local function cover(ends)
  if ends < next_end then next_end, changed = ends, true end
  if ends == math.huge then
    if expiry ~= 0 then expiry, changed, grown = 0, true, true end
  elseif ends > last_end then
    last_end, changed = ends + math.min(1000, math.floor((ends - now) / 8)), true
    if expiry ~= 0 and expiry < ends + 60000 then expiry, grown = ends + 60000, true end
  end
end

-- A permanent lease keeps the state for ever. Once none is left (`but`: the one that is about to end) and the limit is
-- not pinned, the TTL comes back.
local function expire_again(but)
  if expiry ~= 0 or pinned then return end
  local last = redis.call('ZREVRANGE', holders, 0, 1, 'WITHSCORES')
  local other = last[1] == but and 3 or 1
  if last[other + 1] ~= 'inf' then
    expiry, changed, grown = math.max(last_end - 1000, now) + 60000, true, true
  end
end
-- Part: who waits, who still listens, and what they are told.
local function waiter(text)
  local permits, lease, patience, ask_at, inbox = string.match(text or '', '^w (%d+) (%d+) (%d+) (%d+) (%S*)$')
  return tonumber(permits), tonumber(lease), tonumber(patience), tonumber(ask_at), inbox
end

local function waiter_text(permits, lease_ms, patience, ask_at, inbox)
  return 'w ' .. permits .. ' ' .. lease_ms .. ' ' .. patience .. ' ' .. ask_at .. ' ' .. inbox
end

-- A message: a grant, or with `fence` 0 a hint to ask again at `at`. False when it could not be sent.
local function tell(inbox, who, permits, fence, at)
  local sent = redis.pcall('PUBLISH', inbox, who .. ' ' .. permits .. ' ' .. fence .. ' ' .. at .. ' ' .. now)
  return type(sent) == 'number'
end

-- The waiters at these places, and their records.
local function look(first, last)
  local ids = redis.call('ZRANGE', queue, first, last)
  return ids, #ids > 0 and redis.call('HMGET', meta, unpack(ids)) or {}
end

-- Tells the head to ask at `at` (`now`: at once) if it plans to sleep longer, and remembers that it was told.
local function rouse(who, text, at)
  local permits, lease_ms, patience, ask_at, inbox = waiter(text)
  if inbox and inbox ~= '' and ask_at > at then
    if not wrote then set_ttl(queue) end -- first, since this is allowed when memory is full
    redis.call('HSET', meta, who, waiter_text(permits, lease_ms, patience, at, inbox))
    tell(inbox, who, 0, 0, at == now and 0 or at)
  end
end
-- semaphore/refresh: a new lease for a permit, counted from now. Never brings back what is lost.
--
-- KEYS  meta holders queue
-- ARGV  id
--       lease_ms   0: permanent
-- REPLY refreshed permits fence expires_at now
--       lost      now
takes('meta holders queue', 3, 'id lease_ms', 2)
local id, lease_ms = word(1, 'id', 200), number(2, 'lease_ms', 0, 3155760000000)
if problem then return redis.error_reply(problem) end

local fence, permits = holding(record)
local before = redis.call('ZSCORE', holders, id)
local waiting = redis.call('ZCARD', queue)
if not fence or not before or tonumber(before) <= now then return {'lost', now} end

local ends = lease_ms == 0 and math.huge or now + lease_ms
if before == 'inf' and lease_ms > 0 then expire_again(id) end
cover(ends)
set_ttl(holders) -- first, since this is allowed when memory is full, and everything is after it
redis.call('ZADD', holders, lease_ms == 0 and '+inf' or ends, id)
if changed then redis.call('HSET', meta, 'the state', state_text()) end
if grown then
  set_ttl(meta)
  if waiting > 0 then set_ttl(queue) end
end
if waiting > 0 and ends < tonumber(before) then -- the head may plan to sleep longer
  local ids, texts = look(0, 0)
  rouse(ids[1], texts[1], ends)
end
return {'refreshed', permits, fence, lease_ms == 0 and -1 or ends, now}
