-- autocomplete/recent_match: a user's recent contacts that begin with a prefix. Writes nothing.
--
-- KEYS  recent
-- ARGV  prefix     any bytes; the case of ASCII letters is ignored; empty: all contacts
--       count      how many to list at most, 1 to 1000
-- REPLY contacts   a list, newest first

-- Part: checks of arguments. The first problem found is the reply, and it is given before anything is written.
local problem

local function refuse(text)
  problem = problem or 'LUAGATE ' .. text
end

-- ARGV[at] as a number: decimal digits and nothing else (tonumber alone takes '0x3', '1e0' and ' 2 '). Here and in what
-- follows, `text + 0` is the number that a text of digits stands for; tonumber takes twice as long.
local function number(at, name, least, most)
  local text = ARGV[at]
  if text == '0' and least == 0 then return 0 end
  local value = text and string.find(text, '^%d+$') and text + 0
  if not value or value < least or value > most then
    refuse(string.format('%s: takes %.0f to %.0f, in decimal digits', name, least, most))
    return least
  end
  return value
end

-- ARGV[at] as a word: 1 to `most` bytes, none of them white space or a control character.
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not string.find(text, '^[!-~\128-\255]+$') then
    refuse(name .. ': takes 1 to ' .. most .. ' bytes without white space or control characters')
  end
  return text
end

-- How many keys and arguments there are, so that a client that forgot one is told which there should be. `optional`: so many of
-- the last arguments may be left out.
local function takes(keys, key_count, arguments, count, optional)
  if #KEYS ~= key_count then refuse('keys: takes ' .. key_count .. ': ' .. keys) end
  local least = count - (optional or 0)
  if #ARGV > count or #ARGV < least then
    -- Some clients remove white space at the end of an error, so none ends in it.
    local shown = count > 0 and ': ' .. arguments or ''
    refuse('arguments: takes ' .. (optional and least .. ' or ' or '') .. count .. shown)
  end
end

takes('recent', 1, 'prefix count', 2)
local prefix, count = ARGV[1], number(2, 'count', 1, 1000)
if problem then return redis.error_reply(problem) end

prefix = string.lower(prefix) -- ASCII only: servers run with the C locale's letters
local contacts = {}
for _, contact in ipairs(redis.call('LRANGE', KEYS[1], 0, 999)) do -- recent_add keeps no more
  if string.lower(string.sub(contact, 1, #prefix)) == prefix then
    contacts[#contacts + 1] = contact
    if #contacts == count then break end
  end
end
return contacts
