-- semaphore/inspect: who holds and who waits. Writes nothing. Whose lease has ended is neither listed nor counted.
--
-- KEYS  meta holders queue
-- ARGV  offset   how many holders, and how many waiters, to leave out at the start
--       count    how many of each to list at most, 0 to 1000
-- REPLY limit pinned in_use holder_count waiter_count last_fence now holders waiters
--
-- The reply has no word in front. `holders` has a list for each: id permits fence expires_at cooling_down; whose lease ends
-- first, first. cooling_down is 1 for permits that were released before their minimum hold ended: nobody holds them until then.
-- `waiters` has a list for each: id permits ticket patience_until; in the order of the queue. in_use and waiter_count are exact
-- where at most 1,000 leases have ended, or run, and 1,000 wait; beyond that they count also some that are over.
-- include: checks.lua
takes('meta holders queue', 3, 'offset count', 2)
local offset, count = number(1, 'offset', 0, 2147483647), number(2, 'count', 0, 1000)
if problem then return redis.error_reply(problem) end
-- include: clock.lua
local id = ''
-- include: semaphore/load.lua
local waiting, gives_back = call('ZCARD', queue)
-- include: semaphore/count.lua
-- The fence and the permits of these ids; nothing for one that has no record of a holder.
local function holdings(ids)
  local list = {}
  for i, text in ipairs(#ids > 0 and call('HMGET', meta, unpack(ids)) or {}) do
    list[i] = text and (#text == PLAIN_HOLDER_SIZE and {struct.unpack(PLAIN_HOLDER, text), 1}
      or #text == HOLDER_SIZE and {struct.unpack(HOLDER, text)}) or {0, 0}
  end
  return list
end
local live = call('ZCOUNT', holders, '(' .. now, '+inf')
in_use = live
if suspended or not consistent then
  in_use = math.max(limit, live)
elseif extra_weight > 0 then
  -- What those weigh whose leases have ended, or those that hold, whichever are fewer.
  local ended, sum = held - live, 0
  local first, last = '-inf', now
  if live < ended then first, last = '(' .. now, '+inf' end
  for from = 0, math.min(live, ended, 1000) - 1, 100 do
    for _, row in ipairs(holdings(call('ZRANGEBYSCORE', holders, first, last, 'LIMIT', from, 100))) do sum = sum + row[2] - 1 end
  end
  in_use = live + (live < ended and sum or extra_weight - sum)
end
-- The ids and the scores of a reply.
local function split(reply)
  local ids, scores = {}, {}
  for i = 1, #reply, 2 do ids[#ids + 1], scores[#ids + 1] = reply[i], tonumber(reply[i + 1]) end
  return ids, scores
end
-- The waiters at these places whose patience has not ended, and how many there are whose patience has.
local function waiters(from, to)
  local list, over = {}, 0
  local ids, tickets = split(call('ZRANGE', queue, from, to, 'WITHSCORES'))
  for i, text in ipairs(#ids > 0 and call('HMGET', meta, unpack(ids)) or {}) do
    local permits, _, patience = struct.unpack(WAITER, text and #text >= WAITER_SIZE and text or string.rep('\0', WAITER_SIZE))
    if patience > now then list[#list + 1] = {ids[i], permits, tickets[i], patience} else over = over + 1 end
  end
  return list, over
end
for from = 0, math.min(waiting, 1000) - 1, 100 do
  waiting = waiting - select(2, waiters(from, from + 99))
end
local holder_list, waiter_list = {}, {}
if count > 0 then
  waiter_list = waiters(offset, offset + count - 1)
  local ids, ends = split(call('ZRANGEBYSCORE', holders, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', offset, count))
  for i, row in ipairs(holdings(ids)) do
    local released = string.match(ids[i], '^(%S+) %d+ %d+$')
    holder_list[i] = {released or ids[i], row[2], row[1], ends[i] == NEVER and -1 or ends[i], released and 1 or 0}
  end
end
return {limit, pinned and 1 or 0, in_use, live, waiting, last_fence, now, holder_list, waiter_list}
