-- Part: stay. The caller joins the line, or stays in it. Computes its position, when to ask again, and its record.
-- In   joins: it is not in line yet
-- Out  position, from 1; retry_after, in ms; the record
if joins then
  ticket, last_fence, next_fence = next_fence, next_fence, next_fence + 1
  call('ZADD', queue, ticket, id)
  is_new_queue = waiting == 0
  if is_new_queue then head_until = patience_until end
  waiting = waiting + 1
end
local position = joins and waiting or call('ZRANK', queue, id) + 1 -- a new ticket is the highest
local watch = position -- it waits for the end of this lease, counted from 1
-- If the call is repeated by a waiter, and all waiters ahead are dead, it watches the same lease as the first waiter.
if place and position > 1 and position <= 10 then
  watch = 1
  for _, text in ipairs(call('HMGET', meta, unpack(call('ZRANGE', queue, 0, position - 2)))) do
    if watch == 1 and text and listens((string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1))) then watch = position end
  end
end
local retry_after = math.max(1, (wait_ms - wait_ms % 3) / 3)
if stopped then
  retry_after = 1
elseif suspended or next_end < now + retry_after then -- while suspended it waits for the last lease
  local nth = suspended and '0' or watch - 1
  local score = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, nth, nth, 'WITHSCORES')[2]
  if score and score ~= 'inf' then retry_after = math.min(retry_after, math.max(1, score - now)) end
end
if expiry ~= 0 and patience_until > expiry then expiry, ttl_changed = patience_until + 60000, true end
wrote = true -- the record of a waiter may be refused when memory is full
local text = struct.pack(WAITER, want, lease_ms, patience_until, wait_ms - retry_after, at_least_ms) .. inbox
if records then records[#records + 1], records[#records + 2] = id, text else records = {id, text} end
