-- autocomplete/recent_add: makes a contact the newest of a user's recent ones. A repeated call changes nothing more.
--
-- KEYS  recent
-- ARGV  contact   any bytes
--       keep      how many of the newest to keep, 1 to 1000; older ones are removed
-- REPLY kept      how many there are now

-- include: checks.lua

takes('recent', 1, 'contact keep', 2)
local contact, keep = ARGV[1], number(2, 'keep', 1, 1000)
if problem then return redis.error_reply(problem) end

local recent = KEYS[1]
local place = redis.call('LPOS', recent, contact)
local kept
if place == 0 then
  kept = redis.call('LLEN', recent)
else
  kept = redis.call('LPUSH', recent, contact) -- first, since this is refused when memory is full
  if place then kept = kept - redis.call('LREM', recent, -1, contact) end -- from the tail: the older of the two
end
if kept > keep then
  redis.call('LTRIM', recent, 0, keep - 1)
  kept = keep
end
return kept
