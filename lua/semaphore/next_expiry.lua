-- Part: next expiry. Computes a field of the reply `denied`.
-- In   waits (the caller is denied since the line is full: the exact end of the next lease is not read), stopped, waiting,
--      head_until, suspended, next_end, now, call, holders, NEVER
-- Out  next_expiry (ms until the next lease expires, or the last one while suspended. If none expires: until the patience of the
--      first waiter ends)
local ends_at = next_end < NEVER and next_end -- a lease that was refreshed may end later
if not stopped and (suspended or not waits) then
  local score = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')[2]
  ends_at = score and score ~= 'inf' and score
end
if stopped or not ends_at then ends_at = waiting > 0 and head_until end -- 0: serve stopped at its bound; ask at once
local next_expiry = ends_at and math.max(1, ends_at - now) or -1
