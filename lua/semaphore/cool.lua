-- Part: cool. What the caller gives back before its minimum hold ends is in use until then, as a lease of nobody.
-- In   keep: how many of its permits stay with the caller
if least_end > now and keep < weight then
  local name = string.format('%s %.0f %.0f', id, keep, fence)
  call('HDEL', meta, id) -- first, since this is allowed when memory is full
  call('ZADD', holders, least_end, name)
  local permits, ends = weight - keep, least_end
  records = records or {}
  records[#records + 1], records[#records + 2] = name, struct.pack(HOLDER, fence, permits, least_end)
  -- include: semaphore/bounds.lua
  held, extra_weight, in_use = held + 1, extra_weight + permits - 1, in_use + permits
  wrote, changed = true, true
end
