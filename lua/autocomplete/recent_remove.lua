-- autocomplete/recent_remove: removes one of a user's recent contacts. A repeated call changes nothing more.
--
-- KEYS  recent
-- ARGV  contact   any bytes
-- REPLY removed   1, or 0 when it was not there

-- include: checks.lua

takes('recent', 1, 'contact', 1)
if problem then return redis.error_reply(problem) end
return redis.call('LREM', KEYS[1], 1, ARGV[1])
