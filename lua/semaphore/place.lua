-- Part: place. Finds the caller's place in line: the one that it has, one that the server removed, or a new one.
-- In   want, wait_ms, ticket, head_start_ms: arguments
-- Out  place: its ticket, if it was in line before; waits: it waits in line, until `patience_until`; is_new: it joins the line
--      unless it is granted; behind: how many waiters it comes before, by its head start; asks; serves; ticket, or 0: it has
--      none yet; above_limit: it wants more than the limit
local place = record and call('ZSCORE', queue, id)
local above_limit = want and want > limit
local waits = wait_ms > 0 and want and not above_limit
local asks, behind, patience_until = true, 0, now + wait_ms
local is_new = waits and not place and ticket == 0
-- No waiter is read while it is known that the first one stays first.
local serves = in_use < limit or now >= head_until or not is_new and (waits or place)
if place then
  ticket = tonumber(place)
elseif ticket > 0 then
  if waits and (waiting > 0 or in_use + want > limit) then
    last_fence = math.max(last_fence, ticket + head_start_ms * 1000)
    next_fence = math.max(next_fence, last_fence + 1)
    call('ZADD', queue, ticket, id)
    is_new_queue, wrote = waiting == 0, true
    if is_new_queue then head_until = patience_until end
    waiting = waiting + 1
  end
elseif head_start_ms > 0 then
  ticket = math.max(1, next_fence - head_start_ms * 1000)
  if waiting > 0 and (waits or serves) then behind = call('ZCOUNT', queue, '(' .. string.format('%.0f', ticket), '+inf') end
end
