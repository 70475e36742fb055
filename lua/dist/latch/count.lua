-- latch/count: how many are left. Writes nothing.
--
-- KEYS  latch waiters
-- ARGV  none
-- REPLY none    now                  nobody has counted down or waited
--       open    count now
--       closed  left count now

-- Part: checks of arguments. The first problem found is the reply, and it is given before anything is written.
local problem

local function refuse(text)
  problem = problem or 'LUAGATE ' .. text
end

-- ARGV[at] as a number: decimal digits and nothing else (tonumber alone takes '0x3', '1e0' and ' 2 '). Here and in what
-- follows, `text + 0` is the number that a text of digits stands for; tonumber takes twice as long.
local function number(at, name, least, most)
  local text = ARGV[at]
  if text == '0' and least == 0 then return 0 end
  local value = text and string.find(text, '^%d+$') and text + 0
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

-- How many keys and arguments there are, so that a client that forgot one is told which there should be. `optional`: so many of
-- the last arguments may be left out.
local function takes(keys, key_count, arguments, count, optional)
  if #KEYS ~= key_count then refuse('keys: takes ' .. key_count .. ': ' .. keys) end
  local least = count - (optional or 0)
  if #ARGV > count or #ARGV < least then
    -- Some clients remove white space at the end of an error, so none ends in it.
    local shown = count > 0 and ': ' .. arguments or ''
    refuse('arguments: takes ' .. (optional and least .. ' or ' or '') .. count .. shown)
  end
end
-- Part: the server's time, asked for once: before Redis 7.2 it moves while a script runs.
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
-- Part: what is kept of the latch. Writes nothing.
--
-- The latch hash has one field of its own; its name holds a space, which no id can:
--   'the state'   count counted expiry, as numbers
-- and, until the latch opens, a field for each id that counted down. Once it is open, nobody asks who did.
if #KEYS < 2 then return redis.error_reply('LUAGATE keys: takes 2: latch waiters') end -- there is nothing to read
local latch, waiters = KEYS[1], KEYS[2]
if latch == waiters then return redis.error_reply('LUAGATE keys: takes 2, each once: latch waiters') end

local fields = call('HLEN', latch)
local waiting = call('ZCARD', waiters)

local count = 0     -- how many have to count down; 0: none is stored
local counted = 0   -- how many have
local expiry = now  -- when the keys go
local a, b, c = string.match(call('HGET', latch, 'the state') or '', '^(%d+) (%d+) (%d+)$')
if a then count, counted, expiry = tonumber(a), tonumber(b), tonumber(c) end

-- Where state and ids disagree, whoever is not known has not counted: rather late than early.
if counted < count then counted = math.min(counted, fields - 1) end

local function is_open()
  return count > 0 and counted >= count
end

takes('latch waiters', 2, '', 0)
if problem then return redis.error_reply(problem) end

if count == 0 then return {'none', now} end
if is_open() then return {'open', count, now} end
return {'closed', count - counted, count, now}
