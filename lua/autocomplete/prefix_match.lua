-- autocomplete/prefix_match: lists the members of a group that begin with a prefix. Writes nothing.
--
-- KEYS  prefix
-- ARGV  prefix    any bytes; empty: all members
--       count     how many to list at most, 1 to 1000
-- REPLY members   a list: the first ones in the order of their bytes

-- include: checks.lua

takes('prefix', 1, 'prefix count', 2)
local prefix, count = ARGV[1], number(2, 'count', 1, 1000)
if problem then return redis.error_reply(problem) end

-- The range ends before the smallest text that is greater than all texts with this prefix: the prefix with its last byte
-- increased by one. 0xff cannot be increased, so the bytes 0xff at the end of the prefix are dropped first.
local last = #prefix
while last > 0 and string.byte(prefix, last) == 255 do last = last - 1 end
local after = '+'
if last > 0 then after = '(' .. string.sub(prefix, 1, last - 1) .. string.char(string.byte(prefix, last) + 1) end
return redis.call('ZRANGEBYLEX', KEYS[1], '[' .. prefix, after, 'LIMIT', 0, count)
