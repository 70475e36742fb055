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

-- include: clock.lua
-- include: semaphore/read.lua
-- include: arguments.lua
-- include: semaphore/record.lua
-- include: semaphore/agreement.lua

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
