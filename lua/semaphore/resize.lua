-- semaphore/resize: sets the limit and pins it, so that it no longer expires.
--
-- KEYS  meta holders queue
-- ARGV  limit      0: forgets the limit. While somebody holds or waits it is only unpinned: it stays until the state expires
--       expected   sets only if this is the limit in force (0: none is); -1: sets always
-- REPLY resized    old new in_use
--       unchanged  current in_use

-- include: clock.lua
-- include: semaphore/read.lua
-- include: arguments.lua
-- include: semaphore/record.lua
-- include: semaphore/agreement.lua
-- include: semaphore/change.lua
-- include: semaphore/grant.lua
-- include: semaphore/queue.lua
-- include: semaphore/serve.lua

takes('meta holders queue', 3, 'limit expected', 2)
local new = number(1, 'limit', 0, 2147483647)
local expected = ARGV[2] ~= '-1' and number(2, 'expected', 0, 2147483647)
if problem then return redis.error_reply(problem) end

local old = limit
if expected and expected ~= old then return {'unchanged', old, used()} end
if new == 0 and agreed and not state then return {'resized', 0, 0, 0} end

settle()
changed = true
if new == 0 then
  pinned = false
  if held == 0 and waiting == 0 and not closed then limit = 0 end
  expire_again()
else
  limit, pinned = new, true
  if expiry ~= 0 then expiry, grown = 0, true end
end
if not closed then
  -- Whoever wants more than there can be leaves; further back than this, when its turn comes.
  if new > 0 and new < old and waiting > 0 then
    local ids, texts = look(0, 99)
    for i, who in ipairs(ids) do
      local permits, _, _, _, inbox = waiter(texts[i])
      if permits and permits > limit then
        leave_queue(who)
        call('HDEL', meta, who)
        tell(inbox, who, 0, 0, 0)
      end
    end
  end
  serve()
end
save()
return {'resized', old, limit, used()}
