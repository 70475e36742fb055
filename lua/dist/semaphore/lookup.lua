-- semaphore/lookup: what an id has. Writes nothing.
--
-- KEYS  meta holders queue
-- ARGV  id
-- REPLY held    permits fence expires_at now
--       queued  ticket position now
--       gone    now

-- Part: the server's time, asked for once: before Redis 7.2 it moves while a script runs.
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
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
-- Part: what is stored, as the scripts use it once no plain case was met: the record of an id, and the scores of `holders`.
local NEVER = math.huge
local readable = is_known or not state
pinned = pinned == 1
local closed = gate == 1

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
