-- autocomplete/prefix_remove: removes members from a group. A repeated call changes nothing, so it returns 0.
--
-- KEYS  prefix
-- ARGV  member ...   0 to 1000 of them, any bytes
-- REPLY removed      how many were in the group

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

takes('prefix', 1, 'member ...', #ARGV)
if #ARGV > 1000 then refuse('members: got ' .. #ARGV .. '. Accepted: 0 to 1000 in one call') end
if problem then return redis.error_reply(problem) end

if #ARGV == 0 then return 0 end
return redis.call('ZREM', KEYS[1], unpack(ARGV))
