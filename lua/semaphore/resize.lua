-- semaphore/resize: sets the limit and pins it, so that it no longer expires.
--
-- KEYS  meta holders queue
-- ARGV  limit      0: deletes the limit. While any id holds or waits it is only unpinned, and stays until the state expires
--       expected   sets only if this is the limit in force (0: no limit); -1: sets always
-- REPLY resized    old new in_use
--       unchanged  current in_use
-- include: checks.lua
takes('meta holders queue', 3, 'limit expected', 2)
local new = number(1, 'limit', 0, 2147483647)
local expected = ARGV[2] ~= '-1' and number(2, 'expected', 0, 2147483647)
-- include: clock.lua
local id = ''
-- include: semaphore/load.lua
if problem then return redis.error_reply(problem) end
local waiting, gives_back = call('ZCARD', queue)
-- include: semaphore/count.lua
local old = limit
if expected and expected ~= old then return {'unchanged', old, suspended and limit or in_use} end
if new == 0 and consistent and not state then return {'resized', 0, 0, 0} end
-- include: semaphore/expire.lua
-- include: semaphore/messages.lua
changed = true
if new == 0 then
  pinned, lease_ended = false, true
  if held + waiting == 0 and not suspended then limit = 0 end
else
  limit, pinned, expiry, ttl_changed = new, true, 0, true
end
-- A waiter that wants more than the limit leaves the line. Behind the first 100, it leaves when it becomes the first.
if not suspended and waiting > 0 then
  local ids = call('ZRANGE', queue, 0, 99)
  for i, text in ipairs(call('HMGET', meta, unpack(ids))) do
    if text and #text >= WAITER_SIZE and struct.unpack(WAITER, text) > limit then
      call('ZREM', queue, ids[i])
      call('HDEL', meta, ids[i])
      local channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      tell(channel, secret, ids[i], 0, 0, 0)
    end
  end
end
local serves, asks, behind, waits, want, lease_ms, at_least_ms, patience_until = true
-- include: semaphore/serve.lua
-- include: semaphore/write.lua
return {'resized', old, limit, suspended and limit or in_use}
