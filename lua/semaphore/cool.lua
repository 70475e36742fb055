-- Part: cool. Permits released before their minimum hold ends stay in use until then, as a lease without a holder.
-- In   keep: how many permits the caller keeps
if least_end > now and keep < weight then
  local name = string.format('%s %.0f %.0f', id, keep, fence)
  call('HDEL', meta, id) -- first, since HDEL is allowed when memory is full
  call('ZADD', holders, least_end, name)
  local permits, ends = weight - keep, least_end
  records = records or {}
  records[#records + 1], records[#records + 2] = name, struct.pack(HOLDER, fence, permits, least_end)
  -- include: semaphore/bounds.lua
  held, extra_weight, in_use = held + 1, extra_weight + permits - 1, in_use + permits
  wrote, changed = true, true
end
