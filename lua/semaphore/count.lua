-- Part: count. Counts the holders, and checks that the keys are consistent. If a key was evicted, or restored without the
-- others, there are too many or too few records. Nothing is granted before this check. Writes nothing.
-- In   waiting (NEVER: not known yet); gives_back: the caller releases its permits, and their lease has not ended
-- Out  held, in_use, consistent
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
-- A call that can grant no more than it gives back leaves the check to the next call.
local consistent = gives_back and (waiting == 0 or in_use >= limit)
if not consistent then
  if waiting == NEVER then waiting = call('ZCARD', queue) end
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
end
