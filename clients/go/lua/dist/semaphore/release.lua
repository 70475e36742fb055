-- semaphore/release: releases permits, or a place in line. A repeated call changes nothing more.
--
-- KEYS  meta holders queue
-- ARGV  id
--       keep    how many permits to keep; 0: releases all. Permits released before their minimum hold ended stay in use until
--               then
--       fence   only the permit with this fence, or the place in line with this ticket; 0 or left out: any of this id
-- REPLY released  left in_use limit
--       cancelled   the id was in line; the waiter receives a message
--       gone        the lease had ended, or the permit was released before, or the id has another fence or ticket now
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\128-\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
if #ARGV ~= 2 and #ARGV ~= 3 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 2 or 3: id keep fence')
end
local id, keep, only, problem = ARGV[1], ARGV[2], ARGV[3] or '0', nil
keep = keep == '0' and 0 or find(keep, DIGITS) and keep + 0 or -1
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
  or (keep < 0 or keep > 2147483647) and string.format(NO_NUMBER, 'keep', 0, 2147483647)
  or (only < 0 or only > 9007199254740991) and string.format(NO_NUMBER, 'fence', 0, 9007199254740991)
if problem then return redis.error_reply(problem) end
if only > 0 and record and (fence or tonumber(call('ZSCORE', queue, id) or 0)) ~= only then
  record, fence = false, nil -- they belong to a later call with the same id
end
local waiting = fence and line_is_empty and 0 or nil -- nil: not read yet
local gives_back = fence and now < next_end -- before next_end no lease has ended
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
local word, leaves_last = 'gone'
local is_live = gives_back or (fence or suspended or not consistent) and tonumber(call('ZSCORE', holders, id) or 0) > now
if record and keep > 0 then
  if is_live and keep > (weight or 0) or not fence then
    return redis.error_reply('LUAGATE keep: more permits than this id holds. Accepted: 0 to ' .. (weight or 0))
  end
  if is_live and consistent then
    word = 'released'
    local text = keep == 1 and least_end <= now and struct.pack(PLAIN_HOLDER, fence)
      or struct.pack(HOLDER, fence, keep, least_end)
if least_end > now and keep < weight then
  local name = string.format('%s %.0f %.0f', id, keep, fence)
  call('HDEL', meta, id) -- first, since HDEL is allowed when memory is full
  call('ZADD', holders, least_end, name)
  local permits, ends = weight - keep, least_end
  records = records or {}
  records[#records + 1], records[#records + 2] = name, struct.pack(HOLDER, fence, permits, least_end)
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
  held, extra_weight, in_use = held + 1, extra_weight + permits - 1, in_use + permits
  wrote, changed = true, true
end
    records = records or {}
    records[#records + 1], records[#records + 2] = id, text
    extra_weight, in_use, fence = extra_weight - weight + keep, in_use - weight + keep, nil
  end
elseif not consistent or suspended and not record then
  if is_live and keep == 0 and (only == 0 or fence) then
    call('ZREM', holders, id)
    word, lease_ended = 'released', true
  end
elseif fence then
  if is_live then
    word = 'released'
if least_end > now and keep < weight then
  local name = string.format('%s %.0f %.0f', id, keep, fence)
  call('HDEL', meta, id) -- first, since HDEL is allowed when memory is full
  call('ZADD', holders, least_end, name)
  local permits, ends = weight - keep, least_end
  records = records or {}
  records[#records + 1], records[#records + 2] = name, struct.pack(HOLDER, fence, permits, least_end)
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
  held, extra_weight, in_use = held + 1, extra_weight + permits - 1, in_use + permits
  wrote, changed = true, true
end
  end
  call('HDEL', meta, id)
  if waiting > 0 and held == 1 and gives_back then
    leaves_last = true -- else the server deletes the empty key, and creates it again for the next holder
  elseif call('ZREM', holders, id) == 1 then
    held = held - 1
  else
    consistent, word, records = false, 'gone', nil
  end
  in_use = in_use - weight
  if weight > 1 then extra_weight, changed = extra_weight - weight + 1, true end
  fence, wrote, lease_ended = nil, true, true
elseif record and call('ZREM', queue, id) == 0 then
  consistent = false -- the record is of neither a holder nor a waiter
elseif record then
  call('HDEL', meta, id)
  waiting, wrote, changed, word = waiting - 1, true, waiting > 1, 'cancelled'
  local channel, secret = string.match(record, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
  if channel ~= '' then tell(channel, secret, id, 0, 0, -1) end
end
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
local serves, asks, behind, waits, want, lease_ms, at_least_ms, patience_until = true
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
if leaves_last then call('ZREM', holders, id) end
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
if word ~= 'released' then return {word} end
return {word, keep, suspended and limit or in_use, limit}
