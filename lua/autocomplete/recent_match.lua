-- autocomplete/recent_match: lists a user's recent contacts that begin with a prefix. Writes nothing.
--
-- KEYS  recent
-- ARGV  prefix     any bytes; the case of ASCII letters is ignored; empty: all contacts
--       count      how many to list at most, 1 to 1000
-- REPLY contacts   a list, newest first

-- include: checks.lua

takes('recent', 1, 'prefix count', 2)
local prefix, count = ARGV[1], number(2, 'count', 1, 1000)
if problem then return redis.error_reply(problem) end

prefix = string.lower(prefix) -- ASCII only: servers run in the C locale
local contacts = {}
for _, contact in ipairs(redis.call('LRANGE', KEYS[1], 0, 999)) do -- recent_add keeps no more
  if string.lower(string.sub(contact, 1, #prefix)) == prefix then
    contacts[#contacts + 1] = contact
    if #contacts == count then break end
  end
end
return contacts
