-- Part: reads what the semaphore keeps beside its permits, and the record of the id in ARGV[1].
--
-- The meta hash has two fields of its own; their names hold a space, which no id can:
--   'the state'   limit extra next_end last_end expiry pinned closed, as numbers; written only when one of them changes
--   'last fence'  the last fence or ticket that was given
-- and a record for each id, which is
--   <fence>, or <fence> <permits> when it holds more than one
--   w <permits> <lease_ms> <patience_until> <ask_at> <inbox> while it waits
if #KEYS < 3 then return redis.error_reply('LUAGATE keys: takes 3: meta holders queue') end -- there is nothing to read
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if meta == holders or meta == queue or holders == queue then
  return redis.error_reply('LUAGATE keys: takes 3, each once: meta holders queue')
end
local stored = call('HMGET', meta, 'the state', 'last fence', ARGV[1] or '')
local record = stored[3]
local held, waiting, fields = false, false, false -- how many hold, wait, and are in meta, once they are counted
