-- What luacheck knows of lua/. A script is its parts one after the other (lua/manifest.json), so what one part declares at
-- its top the next ones use, and seen alone a part neither declares what it uses nor uses what it declares. The names that
-- parts share stand here, once a family. `./dev test` also checks the whole scripts, without this file.
std = "lua51"
max_line_length = 130
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct" }

local semaphore = {
  set = { -- by later parts too
    "agreed", "changed", "closed", "expiry", "extra", "grown", "held", "in_use", "last_end", "last_fence", "limit",
    "next_end", "pinned", "record", "stopped", "waiting", "wrote",
  },
  read = {
    "NEVER", "as_time", "clock", "close", "cover", "expire_again", "free", "grant", "head_until", "holders",
    "holding", "leave_queue", "listening", "look", "meta", "next_number", "now", "number", "problem", "queue", "readable",
    "refuse", "rouse", "save", "serve", "set_ttl", "settle", "state_text", "stored", "takes", "tell", "used", "waiter",
    "waiter_text", "word",
  },
}

local function shared(names)
  local unused = {} -- in the part that declares them
  for _, list in pairs(names) do
    for _, name in ipairs(list) do table.insert(unused, "[23]/" .. name) end
  end
  return { globals = names.set, read_globals = names.read, ignore = unused }
end

files["lua/semaphore/*.lua"] = shared(semaphore)
