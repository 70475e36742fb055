-- autocomplete/prefix_add: adds members to a group. A repeated call changes nothing, so it returns 0.
--
-- KEYS  prefix
-- ARGV  member ...   0 to 1000 of them, any bytes
-- REPLY added        how many members are new

-- include: checks.lua

takes('prefix', 1, 'member ...', #ARGV)
if #ARGV > 1000 then refuse('members: got ' .. #ARGV .. '. Accepted: 0 to 1000 in one call') end
if problem then return redis.error_reply(problem) end

if #ARGV == 0 then return 0 end
local scored = {} -- all with the score 0, so that bytes alone decide the order
for i, member in ipairs(ARGV) do scored[2 * i - 1], scored[2 * i] = 0, member end
return redis.call('ZADD', KEYS[1], unpack(scored))
