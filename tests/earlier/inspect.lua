-- semaphore/inspect before messages were signed: its parts joined. SHA-1 from the next line on: 0698cf8d95d70bc78683c2efeeaf9aa29938a6f3
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
-- Part: how many hold and wait, and whether the three keys agree. Every grant passes here. Writes nothing.
local held = redis.call('ZCARD', holders)
local waiting = redis.call('ZCARD', queue)
local records = redis.call('HLEN', meta)

-- A key that was evicted, or restored without the others, shows as a record too many or too few.
local agreed = readable
if agreed and stored[1] then
  agreed = records == 2 + waiting + (closed and 0 or held)
  if closed and held == 0 and last_end > now then agreed = false end -- `holders` was lost while it was closed
elseif agreed then
  agreed = records + held + waiting == 0
end

-- While the gate is closed nothing fits, whatever the limit.
local in_use = closed and 2147483647 or held + extra

-- How many permits are in use, as a reply has it.
local function used()
  return closed and limit or in_use
end
-- semaphore/inspect: who holds and who waits. Writes nothing. Whose lease has ended is neither listed nor counted.
--
-- KEYS  meta holders queue
-- ARGV  offset   how many holders, and how many waiters, to leave out at the start
--       count    how many of each to list at most, 0 to 1000
-- REPLY limit pinned in_use holder_count waiter_count last_fence now
--       [ [id permits fence expires_at] ... ]           whose lease ends first, first
--       [ [id permits ticket patience_until] ... ]      in the order of the queue
-- The reply has no word in front. in_use and waiter_count are exact where at most 1,000 leases have ended, or run, and
-- 1,000 wait; beyond that they count also some that are over.
takes('meta holders queue', 3, 'offset count', 2)
local offset, count = number(1, 'offset', 0, 2147483647), number(2, 'count', 0, 1000)
if problem then return redis.error_reply(problem) end

-- What these holders weigh beyond one each.
local function weight_of(least, most)
  local sum = 0
  for first = 0, 900, 100 do
    local ids = redis.call('ZRANGEBYSCORE', holders, least, most, 'LIMIT', first, 100)
    if #ids == 0 then break end
    for _, text in ipairs(redis.call('HMGET', meta, unpack(ids))) do
      local _, permits = holding(text)
      sum = sum + (permits or 1) - 1
    end
  end
  return sum
end

local live = redis.call('ZCOUNT', holders, '(' .. now, '+inf')
local ended = held - live
if closed or not agreed then
  in_use = math.max(limit, live)
elseif extra > 0 and ended > 0 and live <= math.min(ended, 1000) then
  in_use = live + weight_of('(' .. now, '+inf')
elseif extra > 0 and ended > 0 and ended <= 1000 then
  in_use = live + extra - weight_of('-inf', now)
else
  in_use = live + extra
end

-- Waiters at these places whose patience has not ended, and how many there are whose patience has.
local function waiters(first, last)
  local list, over = {}, 0
  local rows = redis.call('ZRANGE', queue, first, last, 'WITHSCORES')
  local ids = {}
  for i = 1, #rows, 2 do ids[#ids + 1] = rows[i] end
  if #ids == 0 then return list, over end
  for i, text in ipairs(redis.call('HMGET', meta, unpack(ids))) do
    local permits, patience = string.match(text or '', '^w (%d+) %d+ (%d+)')
    if patience and tonumber(patience) > now then
      list[#list + 1] = {ids[i], tonumber(permits), tonumber(rows[2 * i]), tonumber(patience)}
    else
      over = over + 1
    end
  end
  return list, over
end

local in_line = waiting
for first = 0, math.min(waiting, 1000) - 1, 100 do
  local _, over = waiters(first, first + 99)
  in_line = in_line - over
end

local holder_list, waiter_list = {}, {}
if count > 0 then
  waiter_list = waiters(offset, offset + count - 1)
  local rows = redis.call('ZRANGEBYSCORE', holders, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', offset, count)
  local ids = {}
  for i = 1, #rows, 2 do ids[#ids + 1] = rows[i] end
  local texts = #ids > 0 and redis.call('HMGET', meta, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local fence, permits = holding(texts[i])
    holder_list[i] = {id, permits or 0, fence or 0, as_time(rows[2 * i])}
  end
end
return {limit, pinned and 1 or 0, in_use, live, in_line, last_fence, now, holder_list, waiter_list}
