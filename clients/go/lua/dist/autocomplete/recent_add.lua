-- autocomplete/recent_add: makes a contact the newest of a user's recent ones. A repeated call changes nothing more.
--
-- KEYS  recent
-- ARGV  contact   any bytes
--       keep      how many of the newest to keep, 1 to 1000; older ones are removed
-- REPLY kept      how many there are now

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
