-- semaphore/inspect: lists holders and waiters. Writes nothing. Ended leases are neither listed nor counted.
--
-- KEYS  meta holders queue
-- ARGV  offset   how many holders, and how many waiters, to skip
--       count    how many of each to list at most, 0 to 1000
-- REPLY limit pinned in_use holder_count waiter_count last_fence now holders waiters
--
-- The reply does not begin with a word. `holders` has a list for each: id permits fence expires_at cooling_down; in the order of
-- the ends. cooling_down is 1 for permits that were released before their minimum hold ended: they have no holder until then.
-- `waiters` has a list for each: id permits ticket patience_until; in the order of the queue.
-- in_use is exact if at most 1,000 leases have ended, or at most 1,000 run. waiter_count is exact if at most 1,000 ids wait.
-- Beyond that in_use is approximate, and waiter_count may include waiters whose patience has ended.
-- include: checks.lua
takes('meta holders queue', 3, 'offset count', 2)
local offset, count = number(1, 'offset', 0, 2147483647), number(2, 'count', 0, 1000)
if problem then return redis.error_reply(problem) end
-- include: clock.lua
local id = ''
-- include: semaphore/load.lua
local waiting, gives_back = call('ZCARD', queue)
-- include: semaphore/count.lua
-- Fence and permits of each id; zeros for an id without a holder's record.
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
  -- Reads the permits of the ended leases or of the running ones, whichever are fewer.
  local ended, sum = held - live, 0
  local first, last = '-inf', now
  if live < ended then first, last = '(' .. now, '+inf' end
  for from = 0, math.min(live, ended, 1000) - 1, 100 do
    for _, row in ipairs(holdings(call('ZRANGEBYSCORE', holders, first, last, 'LIMIT', from, 100))) do sum = sum + row[2] - 1 end
  end
  in_use = live + (live < ended and sum or extra_weight - sum)
end
-- Splits a reply into ids and scores.
local function split(reply)
  local ids, scores = {}, {}
  for i = 1, #reply, 2 do ids[#ids + 1], scores[#ids + 1] = reply[i], tonumber(reply[i + 1]) end
  return ids, scores
end
-- Returns the waiters at these places whose patience has not ended, and the number of those whose patience has.
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
