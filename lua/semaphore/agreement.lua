-- Part: how many hold and wait, and whether the three keys agree. Every grant that is not plain passes here. Writes nothing.
held = held or call('ZCARD', holders)
waiting = gate ~= 2 and waiting or call('ZCARD', queue)
fields = fields or call('HLEN', meta) -- the state, and the records

-- A key that was evicted, or restored without the others, shows as a record too many or too few.
local agreed = readable
if agreed and state then
  agreed = fields == 1 + waiting + (closed and 0 or held)
  if closed and held == 0 and last_end > now then agreed = false end -- `holders` was lost while it was closed
elseif agreed then
  agreed = fields + held + waiting == 0
end

-- While the gate is closed nothing fits, whatever the limit.
local in_use = closed and 2147483647 or held + extra

-- How many permits are in use, as a reply has it.
local function used()
  return closed and limit or in_use
end
