-- Part: join. The caller joins the line, keeps its place, or has none.
-- In   want, wait_ms, ticket: arguments
-- Out  place: its ticket, where it was in line before; waits: it is in line, or would be, until `patience_until`; asks; serves;
--      ticket; is_new: the ticket is the last in line; above_limit: it wants more than the limit
local place = record and call('ZSCORE', queue, id)
local above_limit = want and want > limit
local waits = wait_ms > 0 and want and not above_limit
local asks, serves, patience_until, is_new = true, true, now + wait_ms
if place then
  ticket = tonumber(place)
elseif waits and (waiting > 0 or in_use + want > limit) then
  is_new = ticket == 0
  if is_new then
    ticket, last_fence, next_fence = next_fence, next_fence, next_fence + 1
  elseif ticket > last_fence then
    last_fence, next_fence = ticket, math.max(next_fence, ticket + 1)
  end
  call('ZADD', queue, ticket, id)
  is_new_queue, wrote = waiting == 0, true
  if is_new_queue then head_until = patience_until end
  waiting = waiting + 1
end
-- Nobody is looked at while it is known that the first waiter stays first.
if in_use >= limit and now < head_until and (is_new or not waits and not place) then serves = false end
