-- Part: argument checks, for scripts that need not be fast. `problem` is the first error found; the script returns it.
-- include: arguments.lua
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
-- ARGV[at] as a number.
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
-- ARGV[at] as a word of at most `most` bytes.
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
-- Checks the numbers of keys and arguments.
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  -- Some clients remove white space at the end of an error, so no error ends with it.
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
