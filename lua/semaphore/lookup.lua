-- semaphore/lookup: what an id has. Writes nothing.
--
-- KEYS  meta holders queue
-- ARGV  id
-- REPLY held    permits fence expires_at now
--       queued  ticket position now
--       gone    now

-- include: clock.lua
-- include: semaphore/read.lua
-- include: arguments.lua
-- include: semaphore/record.lua

takes('meta holders queue', 3, 'id', 1)
local id = word(1, 'id', 200)
if problem then return redis.error_reply(problem) end

local fence, permits = holding(record)
local ends = call('ZSCORE', holders, id)
local rank = call('ZRANK', queue, id)
if fence and ends and tonumber(ends) > now then
  return {'held', permits, fence, as_time(ends), now}
end
local _, _, patience = waiter(record)
if rank and patience and patience > now then
  return {'queued', tonumber(call('ZSCORE', queue, id)), rank + 1, now}
end
return {'gone', now}
