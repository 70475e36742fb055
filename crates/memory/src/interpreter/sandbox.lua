-- The environment of scripts, as on a Redis server. Returns the function that runs a script.
local error, next, pcall, setmetatable, tostring, type = error, next, pcall, setmetatable, tostring, type
local _G, redis, select, struct = _G, redis, select, struct

local sha1hex = redis.sha1hex
function redis.sha1hex(...)
  if select('#', ...) ~= 1 then error('wrong number of arguments', 0) end
  local value = ...
  return sha1hex(type(value) == 'number' and tostring(value) or value)
end

local unpack = struct.unpack
local function complete(...)
  if select('#', ...) == 0 then error("bad argument #2 to 'unpack' (data string too short)", 3) end
  return ...
end
function struct.unpack(...) return complete(unpack(...)) end

-- The error of a command is a table with the field `err`. `pcall` returns the text in it.
local function text_of_error(ok, value, ...)
  if not ok and type(value) == 'table' and value.err then value = value.err end
  return ok, value, ...
end
function _G.pcall(...) return text_of_error(pcall(...)) end
function redis.call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then error(reply) end
  return reply
end

-- Scripts read global variables through an empty table, and cannot write to it.
local globals = {}
for name, value in next, _G do globals[name] = value end
for name in next, globals do _G[name] = nil end
setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
setmetatable(_G, {
  __index = globals,
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
})

return function(script, keys, arguments)
  globals.KEYS, globals.ARGV = keys, arguments
  local ok, value = pcall(script)
  if ok then return value end
  if type(value) ~= 'table' then return {err = 'ERR ' .. tostring(value)} end
  return {err = type(value.err) == 'string' and value.err or 'ERR unknown error'}
end
