-- semaphore/acquire: requests permits, at once or in line. A repeated call with the same id grants nothing twice.
--
-- KEYS  meta holders queue
-- ARGV  id         the caller's id
--       permits    1 to the limit in force, or `all`: all that are free now, at least 1, never in line
--       limit      the limit to store if none is stored yet; 0: declares none
--       lease_ms   how long the permit is valid without a refresh; 0: permanent
--       wait_ms    how long the caller stays in line after this call; 0: does not wait
--       inbox      channel for messages, or `<channel>#<secret>`: then the messages are signed with the secret;
--                  empty: no messages, the caller only asks again
--       ticket     0, or the ticket of an earlier reply: restores the place of a waiter that the server removed. One that no
--                  server gave counts as 0: above the last fence, and more than a minute ahead of the server's clock
--       max_waiting    joins the line only while fewer ids wait; 0 or left out: joins any line. A waiter keeps its place
--       at_least_ms    minimum hold: permits that are released earlier stay in use until it ends; 0 or left out: none.
--                      The lease is not shorter
--       head_start_ms  joins the line as if the call had come that much earlier, up to a day; 0 or left out: at the end
-- REPLY granted      permits fence expires_at now in_use limit
--       held         permits fence expires_at now in_use limit
--       queued       ticket position retry_after in_use limit now
--       denied       next_expiry in_use limit waiting now  with wait_ms: the line is full; next_expiry may be too early
--       above_limit  limit now  more than the limit in force, so never granted; the id has no place in line
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\128-\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
if #ARGV < 7 or #ARGV > 10 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 7 to 10: '
    .. 'id permits limit lease_ms wait_ms inbox ticket max_waiting at_least_ms head_start_ms')
end
local id, want, declared, lease_ms, wait_ms, inbox, ticket, max_waiting, at_least_ms, head_start_ms = unpack(ARGV)
want = want == '1' and 1 or want ~= 'all' and (find(want, DIGITS) and want + 0 or -1)
declared = find(declared, DIGITS) and declared + 0 or -1
lease_ms = find(lease_ms, DIGITS) and lease_ms + 0 or -1
wait_ms = wait_ms == '0' and 0 or find(wait_ms, DIGITS) and wait_ms + 0 or -1
ticket = ticket == '0' and 0 or find(ticket, DIGITS) and ticket + 0 or -1
local longest_wait = inbox == '' and 60000 or 86400000
local problem = (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or want and (want < 1 or want > 2147483647) and string.format(NO_NUMBER, 'permits', 1, 2147483647) .. ', or all'
  or (declared < 0 or declared > 2147483647) and string.format(NO_NUMBER, 'limit', 0, 2147483647)
  or (lease_ms < 0 or lease_ms > 3155760000000) and string.format(NO_NUMBER, 'lease_ms', 0, 3155760000000)
  or (wait_ms < 0 or wait_ms > longest_wait) and string.format(NO_NUMBER, 'wait_ms', 0, longest_wait)
  or (ticket < 0 or ticket > 9007199254740991) and string.format(NO_NUMBER, 'ticket', 0, 9007199254740991)
  or inbox ~= '' and ((#inbox > 300 or not find(inbox, WORD)) and string.format(NO_WORD, 'inbox', 300)
    or find(inbox, '#') and not find(inbox, '^[^#]+#.')
      and 'LUAGATE inbox: empty channel or secret. Accepted: `channel` or `channel#secret`')
if max_waiting then
  max_waiting = max_waiting == '0' and 0 or find(max_waiting, DIGITS) and max_waiting + 0 or -1
  at_least_ms = (not at_least_ms or at_least_ms == '0') and 0 or find(at_least_ms, DIGITS) and at_least_ms + 0 or -1
  head_start_ms = (not head_start_ms or head_start_ms == '0') and 0 or find(head_start_ms, DIGITS) and head_start_ms + 0 or -1
  problem = problem
    or (max_waiting < 0 or max_waiting > 2147483647) and string.format(NO_NUMBER, 'max_waiting', 0, 2147483647)
    or (at_least_ms < 0 or at_least_ms > 3155760000000) and string.format(NO_NUMBER, 'at_least_ms', 0, 3155760000000)
    or (head_start_ms < 0 or head_start_ms > 86400000) and string.format(NO_NUMBER, 'head_start_ms', 0, 86400000)
  if lease_ms > 0 and lease_ms < at_least_ms then lease_ms = at_least_ms end
else
  max_waiting, at_least_ms, head_start_ms = 0, 0, 0
end
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
if problem then return redis.error_reply(problem) end
local waiting = line_is_empty and now < next_end and not record and want and now + lease_ms <= last_end and 0
local gives_back
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
local own_end = fence and call('ZSCORE', holders, id)
if own_end and tonumber(own_end) > now then
  return {'held', weight, fence, own_end == 'inf' and -1 or tonumber(own_end), now, suspended and limit or in_use, limit}
end
local stored_limit = limit
if limit == 0 then limit = declared end -- stored with the state
if limit == 0 then
  return redis.error_reply(
    'LUAGATE no limit: the call passes no limit and none is stored. Pass a limit, or store one with `resize`')
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
local highest_ticket
if ticket > 0 then
  highest_ticket = math.max(last_fence, micros + 60000000)
  if ticket > highest_ticket then ticket = 0 end
end
local place = record and call('ZSCORE', queue, id)
local above_limit = want and want > limit
local waits = wait_ms > 0 and want and not above_limit
local asks, behind, patience_until = true, 0, now + wait_ms
local is_new = waits and not place and ticket == 0
local serves = in_use < limit or now >= head_until or not is_new and (waits or place)
if place then
  ticket = tonumber(place)
elseif ticket > 0 then
  if waits and (waiting > 0 or in_use + want > limit) then
    last_fence = math.max(last_fence, math.min(ticket + head_start_ms * 1000, highest_ticket))
    next_fence = math.max(next_fence, last_fence + 1)
    call('ZADD', queue, ticket, id)
    is_new_queue, wrote = waiting == 0, true
    if is_new_queue then head_until = patience_until end
    waiting = waiting + 1
  end
elseif head_start_ms > 0 then
  ticket = math.max(1, next_fence - head_start_ms * 1000)
  if waiting > 0 and (waits or serves) then behind = call('ZCOUNT', queue, '(' .. string.format('%.0f', ticket), '+inf') end
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
local joins = is_new and not given
if joins and max_waiting > 0 and waiting - behind >= max_waiting then
  if not stopped then
local front = call('ZRANGE', queue, 0, math.min(waiting - behind, 100) - 1)
local gone, asked, channels, first_is_gone = {}, {}, {}, false
for i, text in ipairs(call('HMGET', meta, unpack(front))) do
  local is_holder = text and (#text == PLAIN_HOLDER_SIZE or #text == HOLDER_SIZE) -- the queue was restored alone
  local lives = text and #text >= WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now
  local channel = lives and string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
  if not lives and not is_holder then gone[#gone + 1] = front[i] end
  if channel and channel ~= '' then asked[#asked + 1], channels[#channels + 1] = front[i], channel end
end
local counts = #asked > 0 and redis.pcall('PUBSUB', 'NUMSUB', unpack(channels)) or {}
for i, who in ipairs(asked) do
  if counts[2 * i] == 0 then gone[#gone + 1] = who end
end
if #gone > 0 then
  call('ZREM', queue, unpack(gone))
  call('HDEL', meta, unpack(gone))
  waiting, wrote, changed = waiting - #gone, true, true
  for _, who in ipairs(gone) do first_is_gone = first_is_gone or who == front[1] end
  if first_is_gone then
    head_until = 0 -- the next call finds the first waiter
    local last = records and #records or 0 -- a record that `hint` changed must not be written again
    if last > 0 and records[last - 1] == front[1] then records[last - 1], records[last] = nil, nil end
  end
end
  end
  joins = waiting - behind < max_waiting
end
if place and asks and not waits then -- the caller gives up its place
  call('ZREM', queue, id)
  call('HDEL', meta, id)
  waiting, wrote, stopped = waiting - 1, true, stopped and waiting > 1
end
local reply
if given then
  reply = {'granted', weight, given, lease_ms == 0 and -1 or now + lease_ms, now, in_use, limit}
elseif above_limit then
  reply = {'above_limit', limit, now}
  limit = stored_limit -- only a grant stores a limit
elseif joins or waits and not is_new then
if joins then
  if ticket == 0 then ticket = next_fence end
  last_fence, next_fence = next_fence, next_fence + 1
  call('ZADD', queue, ticket, id)
  is_new_queue = waiting == 0
  if waiting == behind then head_until = patience_until end -- it is the first
  waiting = waiting + 1
end
local ahead = joins and waiting - behind - 1 or call('ZRANK', queue, id)
if ahead == 0 and waiting > 1 and not place then
  first, when = call('ZRANGE', queue, '1', '1')[1], now + 1000
  first_text = call('HGET', meta, first)
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
end
local position, retry_after = ahead + 1, math.max(1, (wait_ms - wait_ms % 3) / 3)
if ahead > 0 then retry_after = math.min(retry_after, 1000 * ahead) end
if stopped then
  retry_after = 1
elseif suspended or next_end < now + retry_after then -- while suspended it waits for the last lease
  local lease = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')
  if lease[2] and lease[2] ~= 'inf' then
    local ask_in = math.max(1, lease[2] - now)
    if ahead > 0 and not suspended then
      local asked = record and #record >= WAITER_SIZE and select(3, struct.unpack(WAITER, record)) - wait_ms or 0
      ask_in = math.max(ask_in + math.min(3 * ahead, 60 + math.floor(ahead / 50)), math.min(asked - now, 0) + 1000)
      if find(lease[1], ' ') then ask_in = retry_after end
    end
    retry_after = math.min(retry_after, ask_in)
  end
end
if expiry ~= 0 and patience_until > expiry then expiry, ttl_changed = patience_until + 60000, true end
wrote = true -- the record of a waiter may be refused when memory is full
local text = struct.pack(WAITER, want, lease_ms, patience_until, wait_ms - retry_after, at_least_ms) .. inbox
if records then records[#records + 1], records[#records + 2] = id, text else records = {id, text} end
  reply = {'queued', ticket, position, retry_after, suspended and limit or in_use, limit, now}
else
  local ends_at = next_end < NEVER and next_end -- if the line is full; a lease that was refreshed may end later
  if not stopped and (suspended or not waits) then
    local score = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')[2]
    ends_at = score and score ~= 'inf' and score
  end
  if stopped or not ends_at then ends_at = waiting > 0 and head_until end -- 0: serve stopped at its bound; ask at once
  reply = {'denied', ends_at and math.max(1, ends_at - now) or -1, suspended and limit or in_use, limit, waiting, now}
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
