-- latch/count_down: counts an id, once. The last one opens the latch. A repeated call with the same id counts nothing twice.
--
-- KEYS  latch waiters
-- ARGV  id        the caller's id
--       count     how many ids must count down; stored if none is stored. Afterwards the stored count is in force
--       life_ms   how long the latch is kept after this call, at least
-- REPLY counted  left count now
--       already  left count now     the id had counted before, or the latch was open

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\128-\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
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

if counted < count then counted = math.min(counted, fields - 1) end

local function is_open()
  return count > 0 and counted >= count
end

local function clear()
  if fields > 0 then call('UNLINK', latch) end
  fields = 0
end

local function start(declared, ms)
  if count == 0 then
    clear() -- fields without a state belong to no latch
    count = declared
  end
  expiry = math.max(expiry, now + ms)
end

local function save(id)
  if fields > 0 then call('PEXPIREAT', latch, expiry) end -- first, since PEXPIREAT is allowed when memory is full
  local text = count .. ' ' .. counted .. ' ' .. expiry
  if id then
    call('HSET', latch, 'the state', text, id, '')
  else
    call('HSET', latch, 'the state', text)
  end
  if fields == 0 then call('PEXPIREAT', latch, expiry) end
end

local function tell()
  if waiting == 0 then return end
  local inboxes = call('ZREVRANGEBYSCORE', waiters, '+inf', '(' .. now, 'LIMIT', 0, 100)
  for _, inbox in ipairs(inboxes) do
    redis.pcall('PUBLISH', inbox, latch .. ' 0 0 0 ' .. now) -- an ACL may forbid it; the rest of the call must still run
  end
  if #inboxes < 100 then -- all waiters got one; the rest of the waits have ended
    call('UNLINK', waiters)
  else
    call('ZREM', waiters, unpack(inboxes))
  end
end

takes('latch waiters', 2, 'id count life_ms', 3)
local id, declared = word(1, 'id', 200), number(2, 'count', 1, 2147483647)
local life_ms = number(3, 'life_ms', 1, 3155760000000)
if problem then return redis.error_reply(problem) end

local counts = not is_open() and (count == 0 or call('HEXISTS', latch, id) == 0)
start(declared, life_ms)
if counts then
  counted = counted + 1
  if is_open() then clear() end
end
save(counts and not is_open() and id)
if is_open() then tell() end
return {counts and 'counted' or 'already', count - counted, count, now}
