-- latch/count: returns how many ids are left to count down. Writes nothing.
--
-- KEYS  latch waiters
-- ARGV  none
-- REPLY none    now                  no id has counted down, and no caller has waited
--       open    count now
--       closed  left count now

-- include: checks.lua
-- include: clock.lua
-- include: latch/state.lua

takes('latch waiters', 2, '', 0)
if problem then return redis.error_reply(problem) end

if count == 0 then return {'none', now} end
if is_open() then return {'open', count, now} end
return {'closed', count - counted, count, now}
