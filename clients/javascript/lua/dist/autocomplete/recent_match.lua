-- autocomplete/recent_match: lists a user's recent contacts that begin with a prefix. Writes nothing.
--
-- KEYS  recent
-- ARGV  prefix     any bytes; the case of ASCII letters is ignored; empty: all contacts
--       count      how many to list at most, 1 to 1000
-- REPLY contacts   a list, newest first

local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\128-\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end

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
