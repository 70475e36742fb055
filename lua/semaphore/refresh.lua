-- semaphore/refresh: starts a new lease for a permit, counted from now. It ends no earlier than the minimum hold. A lost permit
-- stays lost.
--
-- KEYS  meta holders queue
-- ARGV  id
--       lease_ms   0: permanent
--       fence      only the permit with this fence; 0 or left out: the permit that the id holds
-- REPLY refreshed permits fence expires_at now
--       lost      now
-- include: arguments.lua
if #ARGV ~= 2 and #ARGV ~= 3 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 2 or 3: id lease_ms fence')
end
local id, lease_ms, only, problem = ARGV[1], ARGV[2], ARGV[3] or '0', nil
lease_ms = find(lease_ms, DIGITS) and lease_ms + 0 or -1
only = only == '0' and 0 or find(only, DIGITS) and only + 0 or -1
-- include: clock.lua
-- include: semaphore/load.lua
-- acquire checked the id of a holder without a minimum hold. Some other fields of meta are not ids.
problem = problem or (not fence or least_end > 0) and (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or (lease_ms < 0 or lease_ms > 3155760000000) and string.format(NO_NUMBER, 'lease_ms', 0, 3155760000000)
  or (only < 0 or only > 9007199254740991) and string.format(NO_NUMBER, 'fence', 0, 9007199254740991)
if problem then return redis.error_reply(problem) end
if not fence or only > 0 and fence ~= only then return {'lost', now} end
local ends = lease_ms == 0 and NEVER or now + lease_ms
if ends < least_end then ends = least_end end
local reply = {'refreshed', weight, fence, lease_ms == 0 and -1 or ends, now}
-- Usually nothing else changes: no lease has ended yet, and the new end is within the bounds.
if now < next_end and ends <= last_end and redis.pcall('ZADD', holders, 'XX', 'GT', 'CH', ends, id) == 1 then return reply end
local before = call('ZSCORE', holders, id)
local before_ms = tonumber(before or 0)
if before_ms <= now then return {'lost', now} end
if before_ms == ends then return reply end
local held, waiting = 1, line_is_empty and 0 or call('ZCARD', queue)
renewed = lease_ms == 0 and '+inf' or ends
-- include: semaphore/bounds.lua
lease_ended = before == 'inf'
-- include: semaphore/messages.lua
-- If the lease now ends earlier than before, the first waiter may plan to ask too late.
local first = waiting > 0 and ends < before_ms and call('ZRANGE', queue, '0', '0')[1]
local first_text, when = first and call('HGET', meta, first), math.max(next_end, now)
-- include: semaphore/hint.lua
-- include: semaphore/write.lua
return reply
