-- Part: count. Counts the holders, and checks that the keys are consistent. If a key was evicted, or restored without the
-- others, there are too many or too few records. Nothing is granted before this check. Writes nothing.
-- In   waiting (nil: not read yet), gives_back (the caller releases its permits, and their lease has not ended), call, meta,
--      holders, queue, state, is_known, suspended, limit, extra_weight, last_end, now, NEVER
-- Out  held (the number of holders), in_use, consistent, waiting, line (the first two waiters, if read)
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
-- A call that can grant no more than it gives back leaves the check to the next call.
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or NEVER -- NEVER: not counted
end
