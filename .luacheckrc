-- What luacheck knows of lua/. A script is its parts one after the other (lua/manifest.json), so what one part declares at
-- its top the next ones use, and seen alone a part neither declares what it uses nor uses what it declares. The names that
-- parts share stand here, once a family. `./dev test` also checks the whole scripts, without this file.
std = "lua51"
max_line_length = 130
exclude_files = { "lua/semaphore/open.lua", "lua/semaphore/opened.lua" } -- the two ends of one function
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct" }

local everywhere = { "call", "clock", "micros", "now", "number", "problem", "refuse", "takes", "word" } -- in every family

local semaphore = {
  set = { -- by later parts too
    "agreed", "changed", "closed", "expiry", "extra", "fields", "gate", "grown", "held", "in_use", "last_end", "last_fence",
    "limit", "next_end", "pinned", "record", "stopped", "waiting", "wrote",
  },
  read = {
    "NEVER", "STATE", "as_time", "ask_again", "channel_of", "close", "cover", "digits", "end_of", "expire_again", "free", "grant",
    "head_until", "holder_text", "holders", "holding", "holds", "is_known", "leave_queue", "listening", "look", "meta",
    "next_number", "open", "queue", "readable", "rouse", "save", "serve", "set_ttl", "settle", "state", "state_text",
    "stored", "tell", "used", "waiter", "waiter_text",
  },
}

local latch = {
  set = { "counted", "count", "expiry", "fields" },
  read = { "clear", "is_open", "latch", "now", "save", "start", "tell", "waiters", "waiting" },
}

-- What the parts of a family may use, and need not use where they declare it.
local function shared(set, read)
  local unused, all = {}, {}
  for _, names in ipairs({ set, read, everywhere }) do
    for _, name in ipairs(names) do table.insert(unused, "[23]/" .. name) end
  end
  for _, names in ipairs({ read, everywhere }) do
    for _, name in ipairs(names) do table.insert(all, name) end
  end
  return { globals = set, read_globals = all, ignore = unused }
end

files["lua/*.lua"] = shared({}, {})
files["lua/autocomplete/*.lua"] = shared({}, {})
files["lua/semaphore/*.lua"] = shared(semaphore.set, semaphore.read)
files["lua/latch/*.lua"] = shared(latch.set, latch.read)
