-- autocomplete/prefix_match: the members of a group that begin with a prefix. Writes nothing.
--
-- KEYS  prefix
-- ARGV  prefix    any bytes; empty: all members
--       count     how many to list at most, 1 to 1000
-- REPLY members   a list: the first ones in the order of their bytes

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

takes('prefix', 1, 'prefix count', 2)
local prefix, count = ARGV[1], number(2, 'count', 1, 1000)
if problem then return redis.error_reply(problem) end

-- The range ends before the least text that is greater than all that begin with the prefix: the prefix with its last
-- byte one higher. 0xff has none higher, so where the prefix ends in some, the byte before them counts.
local last = #prefix
while last > 0 and string.byte(prefix, last) == 255 do last = last - 1 end
local after = '+'
if last > 0 then after = '(' .. string.sub(prefix, 1, last - 1) .. string.char(string.byte(prefix, last) + 1) end
return redis.call('ZRANGEBYLEX', KEYS[1], '[' .. prefix, after, 'LIMIT', 0, count)
