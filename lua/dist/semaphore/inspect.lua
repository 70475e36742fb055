-- semaphore/inspect: who holds and who waits. Writes nothing. Whose lease has ended is neither listed nor counted.
--
-- KEYS  meta holders queue
-- ARGV  offset   how many holders, and how many waiters, to leave out at the start
--       count    how many of each to list at most, 0 to 1000
-- REPLY limit pinned in_use holder_count waiter_count last_fence now holders waiters
--
-- The reply has no word in front. `holders` has a list for each: id permits fence expires_at; whose lease ends first, first.
-- `waiters` has a list for each: id permits ticket patience_until; in the order of the queue. in_use and waiter_count are exact
-- where at most 1,000 leases have ended, or run, and 1,000 wait; beyond that they count also some that are over.

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
-- Part: how many hold and wait, and whether the three keys agree. Every grant that is not plain passes here. Writes nothing.
held = held or call('ZCARD', holders)
waiting = gate ~= 2 and waiting or call('ZCARD', queue)
fields = fields or call('HLEN', meta) -- the state, and the records

-- A key that was evicted, or restored without the others, shows as a record too many or too few.
local agreed = readable
if agreed and state then
  agreed = fields == 1 + waiting + (closed and 0 or held)
  if closed and held == 0 and last_end > now then agreed = false end -- `holders` was lost while it was closed
elseif agreed then
  agreed = fields + held + waiting == 0
end

-- While the gate is closed nothing fits, whatever the limit.
local in_use = closed and 2147483647 or held + extra

-- How many permits are in use, as a reply has it.
local function used()
  return closed and limit or in_use
end

takes('meta holders queue', 3, 'offset count', 2)
local offset, count = number(1, 'offset', 0, 2147483647), number(2, 'count', 0, 1000)
if problem then return redis.error_reply(problem) end

-- What these holders weigh beyond one each.
local function weight_of(least, most)
  local sum = 0
  for first = 0, 900, 100 do
    local ids = call('ZRANGEBYSCORE', holders, least, most, 'LIMIT', first, 100)
    if #ids == 0 then break end
    for _, text in ipairs(call('HMGET', meta, unpack(ids))) do
      local _, permits = holding(text)
      sum = sum + (permits or 1) - 1
    end
  end
  return sum
end

local live = call('ZCOUNT', holders, '(' .. now, '+inf')
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
  local rows = call('ZRANGE', queue, first, last, 'WITHSCORES')
  local ids = {}
  for i = 1, #rows, 2 do ids[#ids + 1] = rows[i] end
  if #ids == 0 then return list, over end
  for i, text in ipairs(call('HMGET', meta, unpack(ids))) do
    local permits, _, patience = waiter(text)
    if patience and patience > now then
      list[#list + 1] = {ids[i], permits, tonumber(rows[2 * i]), patience}
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
  local rows = call('ZRANGEBYSCORE', holders, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', offset, count)
  local ids = {}
  for i = 1, #rows, 2 do ids[#ids + 1] = rows[i] end
  local texts = #ids > 0 and call('HMGET', meta, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local fence, permits = holding(texts[i])
    holder_list[i] = {id, permits or 0, fence or 0, as_time(rows[2 * i])}
  end
end
return {limit, pinned and 1 or 0, in_use, live, in_line, last_fence, now, holder_list, waiter_list}
