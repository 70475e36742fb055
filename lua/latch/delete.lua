-- latch/delete: deletes the latch and its counted ids. Sends a message to at most 100 waiters, which ask again.
--
-- KEYS  latch waiters
-- ARGV  none
-- REPLY deleted  now                 there was one, open or closed
--       none     now                 there was none

-- include: checks.lua
-- include: clock.lua
-- include: latch/state.lua
-- include: latch/change.lua

takes('latch waiters', 2, '', 0)
if problem then return redis.error_reply(problem) end

local was_there = count > 0
clear()
tell()
return {was_there and 'deleted' or 'none', now}
