-- semaphore/refresh: a new lease for a permit, counted from now. Never brings back what is lost.
--
-- KEYS  meta holders queue
-- ARGV  id
--       lease_ms   0: permanent
--       fence      only the permit with this fence; 0 or left out: whatever the id holds
-- REPLY refreshed permits fence expires_at now
--       lost      now

-- include: clock.lua
-- include: semaphore/read.lua
-- include: semaphore/plain_refresh.lua
-- include: arguments.lua
-- include: semaphore/record.lua
-- include: semaphore/change.lua
-- include: semaphore/queue.lua

takes('meta holders queue', 3, 'id lease_ms fence', 3, 1)
local id, lease_ms = word(1, 'id', 200), number(2, 'lease_ms', 0, 3155760000000)
local only = ARGV[3] and number(3, 'fence', 0, 4503599627370496) or 0
if problem then return redis.error_reply(problem) end

local fence, permits = holding(record)
local before = call('ZSCORE', holders, id)
waiting = waiting or call('ZCARD', queue)
if not fence or only > 0 and fence ~= only or not before or tonumber(before) <= now then return {'lost', now} end

local ends = lease_ms == 0 and NEVER or now + lease_ms
if before == 'inf' and lease_ms > 0 then expire_again(id) end
cover(ends)
set_ttl(holders) -- first, since this is allowed when memory is full, and everything is after it
call('ZADD', holders, lease_ms == 0 and '+inf' or ends, id)
if changed then call('HSET', meta, 'the state', state_text()) end
if grown then
  set_ttl(meta)
  if waiting > 0 then set_ttl(queue) end
end
if waiting > 0 and ends < tonumber(before) then -- the head may plan to sleep longer
  local ids, texts = look(0, 0)
  rouse(ids[1], texts[1], ends)
end
return {'refreshed', permits, fence, lease_ms == 0 and -1 or ends, now}
