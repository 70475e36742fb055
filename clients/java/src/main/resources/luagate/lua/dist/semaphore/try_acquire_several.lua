-- semaphore/try_acquire_several: requests permits of several semaphores at once, all or none. A repeated call with the same id
-- grants nothing twice.
--
-- KEYS  meta holders queue ...
--                 of 1 to 64 semaphores, all with one hash tag
-- ARGV  id        the caller's id, the same for all
--       permits limit lease_ms at_least_ms ...
--                 of each semaphore, as for `acquire`; permits: 1 to the limit in force
-- REPLY granted      now permits
--       held         now permits
--       denied       index next_expiry now usages still_held
--       above_limit  index limit now still_held  more than the limit in force, so never granted
--
-- Lists are in the order of KEYS. `permits` has for each semaphore: permits fence expires_at in_use limit. `index` is the
-- first semaphore that has too few free permits, or has a waiter; from 1. `usages` has for each: in_use limit waiting.
-- `denied` and `above_limit` grant nothing, and the id has no place in line. `still_held`: at how many of them the id has a
-- permit all the same, by an earlier run of this call: if not 0, release it at each.
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
local count, seen_keys, asked = #KEYS / 3, {}, {}
local tag = string.match(KEYS[1] or '', '{(.-)}')
if count % 1 ~= 0 or count < 1 or count > 64 then
  refuse('keys: wrong number of keys. Accepted: meta holders queue of 1 to 64 semaphores')
end
for _, key in ipairs(KEYS) do
  if seen_keys[key] then refuse('keys: ' .. key .. ' twice. Accepted: each semaphore once') end
  if not tag or string.match(key, '{(.-)}') ~= tag then
    refuse('keys: no hash tag, or different ones. Accepted: keys with one hash tag')
  end
  seen_keys[key] = true
end
if #ARGV ~= 1 + 4 * count then
  refuse('arguments: wrong number of arguments. Accepted: ' .. 1 + 4 * count
    .. ': id, and permits limit lease_ms at_least_ms of each semaphore')
end
local id = word(1, 'id', 200)
for at = 2, problem and 0 or #ARGV, 4 do
  local permits, limit = number(at, 'permits', 1, 2147483647), number(at + 1, 'limit', 0, 2147483647)
  local lease_ms, at_least_ms = number(at + 2, 'lease_ms', 0, 3155760000000), number(at + 3, 'at_least_ms', 0, 3155760000000)
  if not problem and lease_ms > 0 and lease_ms < at_least_ms then lease_ms = at_least_ms end
  asked[#asked + 1] = {permits, limit, lease_ms, at_least_ms}
end
if problem then return redis.error_reply(problem) end
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local function open(KEYS, want, declared, lease_ms, at_least_ms)
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
  if problem then return end
  local waiting, gives_back = call('ZCARD', queue)
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or MANY
end
  local stored_limit = limit
  if limit == 0 then limit = declared end
  local in_force = limit
  if limit == 0 then
    problem = 'LUAGATE no limit: the call passes no limit and none is stored. Pass a limit, or store one with `resize`'
    return
  end
  local own_end = fence and call('ZSCORE', holders, id)
  local is_held = own_end and tonumber(own_end) > now
  local one = {is_held = is_held, above_limit = not is_held and want > limit and limit}
  function one.advance(asks)
    if is_held then return true end
if not consistent or suspended or fence or now >= next_end then
  if consistent and not suspended then -- the caller's own lease, and up to 100 others, the earliest first
    local ended = fence and {id} or {}
    for _, who in ipairs(held > 0 and call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100) or {}) do
      if not fence or who ~= id then ended[#ended + 1] = who end
    end
    if #ended > 0 then
      for _, text in ipairs(extra_weight > 0 and call('HMGET', meta, unpack(ended)) or {}) do
        if text and #text == HOLDER_SIZE then extra_weight = extra_weight - select(2, struct.unpack(HOLDER, text)) + 1 end
      end
      local gone = call('ZREM', holders, unpack(ended))
      consistent = call('HDEL', meta, unpack(ended)) == #ended and gone == #ended
      held, lease_ended = held - gone, true
    end
    if fence then record, fence = false, nil end
    next_end, changed = tonumber(held > 0 and call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] or NEVER), true
  end
  if not consistent then
    local known = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2] or 0)
    call('UNLINK', meta, queue)
    if is_known and last_end > now then
      call('ZADD', holders, last_end, 'lost leases') -- it contains a space, so no id is equal to it
      known = math.max(known, last_end)
    end
    suspended, waiting, extra_weight, record, fence = true, 0, 0, false, nil
    next_end, last_end = NEVER, known == NEVER and last_end or known
    expiry = (pinned or known == NEVER) and 0 or math.max(known, now) + 60000
    held, changed, ttl_changed, wrote = call('ZCARD', holders), true, true, true
  end
  if suspended and call('ZCOUNT', holders, '(' .. now, '+inf') == 0 then
    call('UNLINK', holders)
    suspended, held, extra_weight, next_end, changed, lease_ended = false, 0, 0, NEVER, true, true
  end
  in_use = suspended and 2147483647 or held + extra_weight
end
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
    if record and not fence then -- gives up its place in line
      waiting, record = waiting - call('ZREM', queue, id), false
      call('HDEL', meta, id)
    end
    local serves, behind, waits, patience_until = true, 0, false, nil
local given, stopped, first, first_text, when, texts
local seen, at = 0, 0
while serves and (asks and waiting == behind or waiting > 0 and seen < 100) do
  local in_line = waiting > (asks and behind or 0)
  if in_line and not texts then
    local last = seen == 0 and 1 or 99 - seen -- usually one is served, and the next becomes first
    line = line or call('ZRANGE', queue, '0', seen == 0 and '1' or last)
    if #line <= last then waiting = #line end
    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end
    at, in_line = 0, waiting > 0
  end
  local who, text = id
  if in_line then
    seen, at = seen + 1, at + 1
    who, text = line[at], texts[at]
  end
  local permits, lease, patience, asks_before, at_least, channel, secret
  local mine, alive = asks and who == id, true
  if mine then
    permits = want or math.max(1, limit - in_use)
    lease = lease_ms
    patience = patience_until
    at_least = at_least_ms
  elseif text and #text >= WAITER_SIZE then
    permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, text)
    alive = patience > now
    if alive and (in_use < limit or permits > limit) then
      channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      alive = in_use >= limit or listens(channel)
    end
  else
    alive = false
  end
  local fits = alive and in_use + permits <= limit
  if alive and permits <= limit and (not fits and (waits or not mine) or channel == '') then
    head_until = patience -- stays first; without an inbox its permits are reserved for it
    if not mine and patience - asks_before > next_end then first, first_text = who, text end
    break
  end
  if in_line then -- first, since ZREM is allowed when memory is full, and any write after it
    call('ZREM', queue, who)
    waiting, wrote, changed = waiting - 1, true, true
  end
  local ends, score
  if fits then
    ends = lease == 0 and NEVER or now + lease
    score = lease == 0 and '+inf' or string.format('%d%09d', ends / 1000000000, ends % 1000000000)
    last_fence = next_fence
    next_fence = next_fence + 1
    if not mine then -- the script is atomic: no client sees the message before the permit
      local fence_text = string.format('%d%09d', last_fence / 1000000000, last_fence % 1000000000)
      fits = tell(channel, secret, who, permits, fence_text, lease == 0 and -1 or score)
    end
  elseif alive and not mine then
    tell(channel, secret, who, 0, 0, 0)
  end
  if fits then
call('ZADD', holders, score, who)
local granted = permits == 1 and at_least == 0 and struct.pack(PLAIN_HOLDER, last_fence)
  or struct.pack(HOLDER, last_fence, permits, at_least > 0 and now + at_least or 0)
if records then records[#records + 1], records[#records + 2] = who, granted else records = {who, granted} end
if held == 0 then is_new_holders = true end
if in_use == 0 and last_end > ends + 1000 then last_end = 0 end -- it was of leases that have ended
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
held, in_use, extra_weight, wrote = held + 1, in_use + permits, extra_weight + permits - 1, true
    if mine then given, weight = last_fence, permits end
  elseif in_line and not (text and (#text == PLAIN_HOLDER_SIZE or #text == HOLDER_SIZE)) then -- else it is a holder's record
    call('HDEL', meta, who)
  end
  if mine then asks = false end
  if in_line and at == #line then line, texts = nil, nil end
end
when = math.max(next_end, now) -- a waiter that stays the first asks when the next lease ends
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
if seen == 100 then
  local leaves = asks and not waits and id -- the caller, if it gives up its place
  waiting, head_until = call('ZCARD', queue), 0
  stopped = waiting > 0
  for from = 0, math.min(waiting, 1000) - 1, 100 do
    line = call('ZRANGE', queue, from, from + 99)
    local ids, channels, secrets = {}, {}, {}
    for i, text in ipairs(call('HMGET', meta, unpack(line))) do
      if text and line[i] ~= leaves and #text > WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now then
        ids[#ids + 1] = line[i]
        channels[#ids], secrets[#ids] = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      end
    end
    local nth = #ids > 0 and listens(unpack(channels))
    if nth then tell(channels[nth], secrets[nth], ids[nth], 0, 0, 0) break end
  end
end
    if given then fence, own_end, is_held = given, lease_ms == 0 and 'inf' or now + lease_ms, true end
    local can_have = is_held or waiting == 0 and in_use + want <= limit
    if not can_have then
      local score = not stopped and call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')[2]
      local ends_at = score and score ~= 'inf' and score or waiting > 0 and head_until
      one.next_expiry = ends_at and math.max(1, ends_at - now) or -1
    end
    return can_have
  end
  function one.save()
    if not is_held then limit = stored_limit end -- only a grant stores a limit
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
    local used = suspended and in_force or in_use
    return {weight, fence, own_end == 'inf' and -1 or tonumber(own_end), used, in_force}, {used, in_force, waiting}
  end
  return one
end
local all, still_held, blocked, above = {}, 0, nil, nil
for i = 1, count do
  all[i] = open({KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]}, unpack(asked[i]))
  if problem then return redis.error_reply(problem) end
end
for index, one in ipairs(all) do
  if one.is_held then still_held = still_held + 1 end
  above = above or one.above_limit and index
  if not one.advance(false) then blocked = blocked or index end
end
local permits, usages = {}, {}
for index, one in ipairs(all) do
  if not (above or blocked) then one.advance(true) end
  permits[index], usages[index] = one.save()
end
if above then return {'above_limit', above, all[above].above_limit, now, still_held} end
if blocked then return {'denied', blocked, all[blocked].next_expiry, now, usages, still_held} end
return {still_held == count and 'held' or 'granted', now, permits}
