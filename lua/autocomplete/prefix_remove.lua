-- autocomplete/prefix_remove: removes members from a group. A repeated call changes nothing, so it returns 0.
--
-- KEYS  prefix
-- ARGV  member ...   0 to 1000 of them, any bytes
-- REPLY removed      how many were in the group

-- include: checks.lua

takes('prefix', 1, 'member ...', #ARGV)
if #ARGV > 1000 then refuse('members: got ' .. #ARGV .. '. Accepted: 0 to 1000 in one call') end
if problem then return redis.error_reply(problem) end

if #ARGV == 0 then return 0 end
return redis.call('ZREM', KEYS[1], unpack(ARGV))
