-- Part: place. Finds the caller's place in line, and restores one that the server removed.
-- In   want, wait_ms, ticket: arguments
-- Out  place: its ticket, if it was in line before; waits: it waits in line, until `patience_until`; is_new: it joins the
--      line at the end unless it is granted; asks; serves; ticket; above_limit: it wants more than the limit
local place = record and call('ZSCORE', queue, id)
local above_limit = want and want > limit
local waits = wait_ms > 0 and want and not above_limit
local asks, serves, patience_until, is_new = true, true, now + wait_ms
if place then
  ticket = tonumber(place)
elseif waits and ticket == 0 then
  is_new = true
elseif waits and (waiting > 0 or in_use + want > limit) then
  if ticket > last_fence then last_fence, next_fence = ticket, math.max(next_fence, ticket + 1) end
  call('ZADD', queue, ticket, id)
  is_new_queue, wrote = waiting == 0, true
  if is_new_queue then head_until = patience_until end
  waiting = waiting + 1
end
-- No waiter is read while it is known that the first one stays first.
if in_use >= limit and now < head_until and (is_new or not waits and not place) then serves = false end
