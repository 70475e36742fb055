-- semaphore/lookup: returns the permit or the place in line of an id. Writes nothing.
--
-- KEYS  meta holders queue
-- ARGV  id
-- REPLY held    permits fence expires_at now
--       queued  ticket position now
--       gone    now
-- include: checks.lua
takes('meta holders queue', 3, 'id', 1)
local id = word(1, 'id', 200)
if problem then return redis.error_reply(problem) end
-- include: clock.lua
-- include: semaphore/load.lua
local ends, rank = call('ZSCORE', holders, id), call('ZRANK', queue, id)
if fence and ends and tonumber(ends) > now then
  return {'held', weight, fence, ends == 'inf' and -1 or tonumber(ends), now}
end
if rank and record and #record >= WAITER_SIZE and select(3, struct.unpack(WAITER, record)) > now then
  return {'queued', tonumber(call('ZSCORE', queue, id)), rank + 1, now}
end
return {'gone', now}
