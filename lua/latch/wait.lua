-- latch/wait: asks whether the latch is open, and requests a message when it opens.
--
-- KEYS  latch waiters
-- ARGV  count     how many ids must count down; stored if none is stored. Afterwards the stored count is in force
--       life_ms   how long the latch is kept after this call, at least
--       wait_ms   how long after this call the inbox receives one message if the latch opens; 0: no message
--       inbox     channel for this message; empty: the caller only asks again
-- REPLY open    count now
--       closed  left count retry_after now

-- include: checks.lua
-- include: clock.lua
-- include: latch/state.lua
-- include: latch/change.lua

takes('latch waiters', 2, 'count life_ms wait_ms inbox', 4)
local declared, life_ms = number(1, 'count', 1, 2147483647), number(2, 'life_ms', 1, 3155760000000)
local wait_ms, inbox = number(3, 'wait_ms', 0, 86400000), ARGV[4]
if inbox ~= '' then word(4, 'inbox', 300) end
if problem then return redis.error_reply(problem) end

start(declared, math.max(life_ms, wait_ms)) -- a waiter that gets the message must find the latch
save()
if is_open() then
  tell() -- also to this caller's inbox: other threads may wait there
  return {'open', count, now}
end

local over = waiting > 0 and call('ZRANGEBYSCORE', waiters, '-inf', now, 'LIMIT', 0, 100) or {}
if #over > 0 then call('ZREM', waiters, unpack(over)) end
local retry_after = 1000 -- without an inbox no message comes
if wait_ms > 0 and inbox ~= '' then
  call('ZADD', waiters, 'GT', now + wait_ms, inbox)
  call('PEXPIREAT', waiters, expiry)
  retry_after = math.max(1, math.floor(wait_ms / 3))
end
return {'closed', count - counted, count, retry_after, now}
