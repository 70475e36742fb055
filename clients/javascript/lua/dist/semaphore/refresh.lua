-- semaphore/refresh: starts a new lease for a permit, counted from now. It ends no earlier than the minimum hold. A lost permit
-- stays lost.
--
-- KEYS  meta holders queue
-- ARGV  id
--       lease_ms   0: permanent
--       fence      only the permit with this fence; 0 or left out: the permit that the id holds
-- REPLY refreshed permits fence expires_at now
--       lost      now
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\128-\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
if #ARGV ~= 2 and #ARGV ~= 3 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 2 or 3: id lease_ms fence')
end
local id, lease_ms, only, problem = ARGV[1], ARGV[2], ARGV[3] or '0', nil
lease_ms = find(lease_ms, DIGITS) and lease_ms + 0 or -1
only = only == '0' and 0 or find(only, DIGITS) and only + 0 or -1
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- `write` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
problem = problem or (not fence or least_end > 0) and (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or (lease_ms < 0 or lease_ms > 3155760000000) and string.format(NO_NUMBER, 'lease_ms', 0, 3155760000000)
  or (only < 0 or only > 9007199254740991) and string.format(NO_NUMBER, 'fence', 0, 9007199254740991)
if problem then return redis.error_reply(problem) end
if not fence or only > 0 and fence ~= only then return {'lost', now} end
local ends = lease_ms == 0 and NEVER or now + lease_ms
if ends < least_end then ends = least_end end
local reply = {'refreshed', weight, fence, lease_ms == 0 and -1 or ends, now}
if now < next_end and ends <= last_end and redis.pcall('ZADD', holders, 'XX', 'GT', 'CH', ends, id) == 1 then return reply end
local before = call('ZSCORE', holders, id)
local before_ms = tonumber(before or 0)
if before_ms <= now then return {'lost', now} end
if before_ms == ends then return reply end
local held, waiting = 1, line_is_empty and 0 or call('ZCARD', queue)
renewed = lease_ms == 0 and '+inf' or ends
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
lease_ended = before == 'inf'
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
local first = waiting > 0 and ends < before_ms and call('ZRANGE', queue, '0', '0')[1]
local first_text, when = first and call('HGET', meta, first), math.max(next_end, now)
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
if is_permanent then
  if expiry ~= 0 then expiry, changed, ttl_changed = 0, true, true end
elseif lease_ended and expiry == 0 and not pinned then
  local last = call('ZREVRANGE', holders, '0', '1', 'WITHSCORES')
  last = last[renewed and last[1] == id and 4 or 2]
  if last ~= 'inf' then
    expiry, changed, ttl_changed = math.max(last_end - 1000, tonumber(last or 0), now) + 60000, true, true
  end
elseif state and expiry ~= 0 and expiry <= now then -- keys that expire in this ms would take the new entries with them
  expiry, changed, ttl_changed = now + 60000, true, true
end
if latest > last_end then
  last_end, changed = latest + math.min(1000, math.floor((latest - now) / 8)), true
  if expiry ~= 0 and expiry < latest + 60000 then expiry, ttl_changed = latest + 60000, true end
end
local is_first = not wrote and (changed or records or renewed)
if is_first then
  if expiry == 0 then call('PERSIST', meta) else call('PEXPIREAT', meta, expiry) end
end
if renewed then call('ZADD', holders, renewed, id) end
if changed or records then
  local text = struct.pack(STATE, VERSION * 4 + (pinned and 2 or 0) + (suspended and 1 or 0), limit, extra_weight, next_end,
    last_end, expiry, last_fence, waiting == 0 and NEVER or head_until)
  if records then call('HSET', meta, 'the state', text, unpack(records)) else call('HSET', meta, 'the state', text) end
end
if ttl_changed then
  local keys = {}
  if held > 0 then keys[1] = holders end
  if waiting > 0 then keys[#keys + 1] = queue end
  if not (is_first and state) then keys[#keys + 1] = meta end
  for _, key in ipairs(keys) do
    if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
  end
elseif expiry ~= 0 then
  if is_new_holders then call('PEXPIREAT', holders, expiry) end
  if is_new_queue then call('PEXPIREAT', queue, expiry) end
end
return reply
