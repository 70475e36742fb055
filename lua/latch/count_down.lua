-- latch/count_down: counts an id, once. The last one opens the latch. A repeated call with the same id counts nothing twice.
--
-- KEYS  latch waiters
-- ARGV  id        the caller's id
--       count     how many ids must count down; stored if none is stored. Afterwards the stored count is in force
--       life_ms   how long the latch is kept after this call, at least
-- REPLY counted  left count now
--       already  left count now     the id had counted before, or the latch was open

-- include: checks.lua
-- include: clock.lua
-- include: latch/state.lua
-- include: latch/change.lua

takes('latch waiters', 2, 'id count life_ms', 3)
local id, declared = word(1, 'id', 200), number(2, 'count', 1, 2147483647)
local life_ms = number(3, 'life_ms', 1, 3155760000000)
if problem then return redis.error_reply(problem) end

local counts = not is_open() and (count == 0 or call('HEXISTS', latch, id) == 0)
start(declared, life_ms)
if counts then
  counted = counted + 1
  if is_open() then clear() end
end
save(counts and not is_open() and id)
if is_open() then tell() end
return {counts and 'counted' or 'already', count - counted, count, now}
