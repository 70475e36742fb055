-- semaphore/acquire: requests permits, at once or in line. A repeated call with the same id grants nothing twice.
--
-- KEYS  meta holders queue
-- ARGV  id         the caller's id
--       permits    1 to the limit in force, or `all`: all that are free now, at least 1, never in line
--       limit      the limit to store if none is stored yet; 0: declares none
--       lease_ms   how long the permit is valid without a refresh; 0: permanent
--       wait_ms    how long the caller stays in line after this call; 0: does not wait
--       inbox      channel for messages, or `<channel>#<secret>`: then the messages are signed with the secret;
--                  empty: no messages, the caller only asks again
--       ticket     0, or the ticket of an earlier reply: restores the place of a waiter that the server removed. One that no
--                  server gave counts as 0: above the last fence, and more than a minute ahead of the server's clock
--       max_waiting    joins the line only while fewer ids wait; 0 or left out: joins any line. A waiter keeps its place
--       at_least_ms    minimum hold: permits that are released earlier stay in use until it ends; 0 or left out: none.
--                      The lease is not shorter
--       head_start_ms  joins the line as if the call had come that much earlier, up to a day; 0 or left out: at the end
-- REPLY granted      permits fence expires_at now in_use limit
--       held         permits fence expires_at now in_use limit
--       queued       ticket position retry_after in_use limit now
--       denied       next_expiry in_use limit waiting now  with wait_ms: the line is full; next_expiry may be too early
--       above_limit  limit now  more than the limit in force, so never granted; the id has no place in line
-- include: arguments.lua
if #ARGV < 7 or #ARGV > 10 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 7 to 10: '
    .. 'id permits limit lease_ms wait_ms inbox ticket max_waiting at_least_ms head_start_ms')
end
local id, want, declared, lease_ms, wait_ms, inbox, ticket, max_waiting, at_least_ms, head_start_ms = unpack(ARGV)
want = want == '1' and 1 or want ~= 'all' and (find(want, DIGITS) and want + 0 or -1)
declared = find(declared, DIGITS) and declared + 0 or -1
lease_ms = find(lease_ms, DIGITS) and lease_ms + 0 or -1
wait_ms = wait_ms == '0' and 0 or find(wait_ms, DIGITS) and wait_ms + 0 or -1
ticket = ticket == '0' and 0 or find(ticket, DIGITS) and ticket + 0 or -1
local longest_wait = inbox == '' and 60000 or 86400000
local problem = (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or want and (want < 1 or want > 2147483647) and string.format(NO_NUMBER, 'permits', 1, 2147483647) .. ', or all'
  or (declared < 0 or declared > 2147483647) and string.format(NO_NUMBER, 'limit', 0, 2147483647)
  or (lease_ms < 0 or lease_ms > 3155760000000) and string.format(NO_NUMBER, 'lease_ms', 0, 3155760000000)
  or (wait_ms < 0 or wait_ms > longest_wait) and string.format(NO_NUMBER, 'wait_ms', 0, longest_wait)
  or (ticket < 0 or ticket > 9007199254740991) and string.format(NO_NUMBER, 'ticket', 0, 9007199254740991)
  or inbox ~= '' and ((#inbox > 300 or not find(inbox, WORD)) and string.format(NO_WORD, 'inbox', 300)
    or find(inbox, '#') and not find(inbox, '^[^#]+#.')
      and 'LUAGATE inbox: empty channel or secret. Accepted: `channel` or `channel#secret`')
if max_waiting then
  max_waiting = max_waiting == '0' and 0 or find(max_waiting, DIGITS) and max_waiting + 0 or -1
  at_least_ms = (not at_least_ms or at_least_ms == '0') and 0 or find(at_least_ms, DIGITS) and at_least_ms + 0 or -1
  head_start_ms = (not head_start_ms or head_start_ms == '0') and 0 or find(head_start_ms, DIGITS) and head_start_ms + 0 or -1
  problem = problem
    or (max_waiting < 0 or max_waiting > 2147483647) and string.format(NO_NUMBER, 'max_waiting', 0, 2147483647)
    or (at_least_ms < 0 or at_least_ms > 3155760000000) and string.format(NO_NUMBER, 'at_least_ms', 0, 3155760000000)
    or (head_start_ms < 0 or head_start_ms > 86400000) and string.format(NO_NUMBER, 'head_start_ms', 0, 86400000)
  if lease_ms > 0 and lease_ms < at_least_ms then lease_ms = at_least_ms end
else
  max_waiting, at_least_ms, head_start_ms = 0, 0, 0
end
-- include: clock.lua
-- include: semaphore/load.lua
if problem then return redis.error_reply(problem) end
-- `count` reads the number of waiters, unless it is certain that the queue is not needed.
local waiting = line_is_empty and now < next_end and not record and want and now + lease_ms <= last_end and 0
local gives_back
-- include: semaphore/count.lua
-- The id holds a permit already: return it, even if the limit has changed since.
local own_end = fence and call('ZSCORE', holders, id)
if own_end and tonumber(own_end) > now then
  return {'held', weight, fence, own_end == 'inf' and -1 or tonumber(own_end), now, suspended and limit or in_use, limit}
end
local stored_limit = limit
if limit == 0 then limit = declared end -- stored with the state
if limit == 0 then
  return redis.error_reply(
    'LUAGATE no limit: the call passes no limit and none is stored. Pass a limit, or store one with `resize`')
end
-- include: semaphore/expire.lua
-- include: semaphore/place.lua
-- include: semaphore/messages.lua
-- include: semaphore/serve.lua
local joins = is_new and not given
if joins and max_waiting > 0 and waiting - behind >= max_waiting then
  if not stopped then
    -- include: semaphore/sweep.lua
  end
  joins = waiting - behind < max_waiting
end
if place and asks and not waits then -- the caller gives up its place
  call('ZREM', queue, id)
  call('HDEL', meta, id)
  waiting, wrote, stopped = waiting - 1, true, stopped and waiting > 1
end
local reply
if given then
  reply = {'granted', weight, given, lease_ms == 0 and -1 or now + lease_ms, now, in_use, limit}
elseif above_limit then
  reply = {'above_limit', limit, now}
  limit = stored_limit -- only a grant stores a limit
elseif joins or waits and not is_new then
  -- include: semaphore/stay.lua
  reply = {'queued', ticket, position, retry_after, suspended and limit or in_use, limit, now}
else
  -- Until the next lease ends, or the last one while suspended. If none ends: until the patience of the first waiter does.
  local ends_at = next_end < NEVER and next_end -- if the line is full; a lease that was refreshed may end later
  if not stopped and (suspended or not waits) then
    local score = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')[2]
    ends_at = score and score ~= 'inf' and score
  end
  if stopped or not ends_at then ends_at = waiting > 0 and head_until end -- 0: serve stopped at its bound; ask at once
  reply = {'denied', ends_at and math.max(1, ends_at - now) or -1, suspended and limit or in_use, limit, waiting, now}
end
-- include: semaphore/write.lua
return reply
