-- semaphore/lookup before messages were signed: its parts joined. SHA-1 from the next line on: effbdb6d7f38d18d140ba254e16d4977b8ef16ab
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
local ends = redis.call('ZSCORE', holders, id)
local rank = redis.call('ZRANK', queue, id)
if fence and ends and tonumber(ends) > now then
  return {'held', permits, fence, as_time(ends), now}
end
local patience = string.match(record or '', '^w %d+ %d+ (%d+)')
if rank and patience and tonumber(patience) > now then
  return {'queued', tonumber(redis.call('ZSCORE', queue, id)), rank + 1, now}
end
return {'gone', now}
