-- latch/count: returns how many ids are left to count down. Writes nothing.
--
-- KEYS  latch waiters
-- ARGV  none
-- REPLY none    now                  no id has counted down, and no caller has waited
--       open    count now
--       closed  left count now

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

takes('latch waiters', 2, '', 0)
if problem then return redis.error_reply(problem) end

if count == 0 then return {'none', now} end
if is_open() then return {'open', count, now} end
return {'closed', count - counted, count, now}
