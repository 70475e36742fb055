-- semaphore/lookup of the first version whose state is packed: its parts joined. SHA-1 from the next line on: 7342fa6ed9c193456a9b8e52d0730b7ebf1c81dd
-- Part: the server's time, asked for once: before Redis 7.2 it moves while a script runs.
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
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
local STATE = '<ddddddBB'
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

-- How many keys and arguments there are, so that a client that forgot one is told which there should be.
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: takes ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then refuse('arguments: takes ' .. count .. ': ' .. arguments) end
end
-- Part: what the record of an id says, and what the scores of `holders` mean.

-- A holder: its fence and its permits. Nothing for a waiter.
local function holding(text)
  if text and #text == 8 then return struct.unpack('<d', text), 1 end
  if text and #text == 16 then return struct.unpack('<dd', text) end
end

local function holder_text(fence, permits)
  return permits == 1 and struct.pack('<d', fence) or struct.pack('<dd', fence, permits)
end

-- A waiter: permits, lease_ms, until when it has patience, when it asks again, its inbox. Nothing for a holder.
local function waiter(text)
  if not text or #text < 32 then return end
  local permits, lease_ms, patience, ask_at = struct.unpack('<dddd', text)
  return permits, lease_ms, patience, ask_at, string.sub(text, 33)
end

local function waiter_text(permits, lease_ms, patience, ask_at, inbox)
  return struct.pack('<dddd', permits, lease_ms, patience, ask_at) .. inbox
end

-- A score as a time in a reply: -1 stands for never.
local function as_time(score)
  return score == 'inf' and -1 or tonumber(score)
end
-- semaphore/lookup: what an id has. Writes nothing.
--
-- KEYS  meta holders queue
-- ARGV  id
-- REPLY held    permits fence expires_at now
--       queued  ticket position now
--       gone    now
takes('meta holders queue', 3, 'id', 1)
local id = word(1, 'id', 200)
if problem then return redis.error_reply(problem) end

local fence, permits = holding(record)
local ends = call('ZSCORE', holders, id)
local rank = call('ZRANK', queue, id)
if fence and ends and tonumber(ends) > now then
  return {'held', permits, fence, as_time(ends), now}
end
local _, _, patience = waiter(record)
if rank and patience and patience > now then
  return {'queued', tonumber(call('ZSCORE', queue, id)), rank + 1, now}
end
return {'gone', now}
