-- semaphore/acquire: asks for permits, at once or in line. Running it again with the same id grants nothing twice.
--
-- KEYS  meta holders queue
-- ARGV  id         who asks
--       permits    1 to the limit in force, or `all`: whatever is free now, at least 1, never in line
--       limit      what this caller declares; stored by the first grant. 0: whatever is stored
--       lease_ms   how long the permit lives unless refreshed; 0: permanent
--       wait_ms    how long the caller stays in line after this call; 0: does not wait
--       inbox      channel on which a grant is told, or `<channel>#<secret>`: then the messages are signed with the secret;
--                  empty: the caller only asks again
--       ticket     0, or the ticket of an earlier reply: brings back the place of a waiter that the server forgot
-- REPLY granted      permits fence expires_at now in_use limit
--       held         permits fence expires_at now in_use limit
--       queued       ticket position retry_after in_use limit now
--       denied       next_expiry in_use limit waiting now
--       above_limit  limit now  more than the limit in force, so never granted; the id has no place in line

-- Part: the server's time, asked for once: before Redis 7.2 it moves while a script runs.
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
-- Part: reads what the semaphore keeps beside its permits, and the record of the id in ARGV[1].
--
-- The meta hash has a field of its own, 'the state' (no id has a space), and one for each id, its record. They are numbers as
-- struct packs them, which a script reads and writes several times faster than digits:
--   a holder      fence, or fence permits when it holds more than one
--   a waiter      permits lease_ms patience_until ask_at, and its inbox behind them
--   'the state'   limit        0: none is stored
--                 extra        what the holders weigh beyond one each
--                 next_end     no lease ends before this
--                 last_end     no lease ends after this, but for permanent ones
--                 expiry       when the keys go; 0: they stay
--                 last_fence   the last fence or ticket that was given
--                 pinned       1: the limit was set by resize
--                 gate         0: open; 2: open, and nobody waits, so the plain cases do not look; 1: closed, since keys
--                              were lost: nothing is granted while a lease that is still known runs
local meta, holders, queue = unpack(KEYS, 1, 3)
if not queue then return redis.error_reply('LUAGATE keys: takes 3: meta holders queue') end -- there is nothing to read
if meta == holders or meta == queue or holders == queue then
  return redis.error_reply('LUAGATE keys: takes 3, each once: meta holders queue')
end
local stored = call('HMGET', meta, 'the state', ARGV[1] or '')
local state, record = stored[1], stored[2]
local held, waiting, fields = nil, nil, nil -- how many hold, wait, and are in meta, once they are counted

local STATE = '<ddddddBB' -- 8 bytes a number, 1 a small one: 50
local is_known = state and #state == 50
local limit, extra, next_end, last_end, expiry, last_fence, pinned, gate =
  struct.unpack(STATE, is_known and state or string.rep('\0', 50))
if not is_known then next_end, expiry = math.huge, now end
-- Part: most calls of semaphore/acquire, fast: one permit of a semaphore in which no lease has ended, for an id that is new.
-- It is granted where nobody waits; denied, or put in line, where nothing is free and whoever is at the head stays there. The
-- rest of the script does the same, and everything else.
if limit > 0 and not record and gate ~= 1 and now < next_end and not KEYS[4] then
  local id, want, declared, lease_ms, wait_ms, inbox, ticket, more = unpack(ARGV, 1, 8)
  local find, waits = string.find, wait_ms ~= '0'
  if want == '1' and ticket == '0' and not more
    and #id <= 200 and find(id, '^[!-~\128-\255]+$') and #lease_ms < 13 and find(lease_ms, '^%d+$')
    and find(declared, '^%d+$') and (#declared < 10 or declared + 0 == limit) -- whatever it is: a limit is stored
    and (not waits and inbox == '' or #wait_ms < 8 and find(wait_ms, '^[1-9]%d*$')
      and #inbox <= 300 and find(inbox, '^[!-"$-~\128-\255]+#[!-~\128-\255]+$'))
    and (expiry == 0 or now < expiry) then
    held, fields = call('ZCARD', holders), call('HLEN', meta)
    waiting = gate == 2 and 0 or call('ZCARD', queue)
    local in_use = held + extra
    local agreed = fields == 1 + held + waiting
    local is_full = agreed and in_use >= limit
    if is_full and waiting > 0 then
      local text = call('HGET', meta, call('ZRANGE', queue, '0', '0')[1])
      is_full = text and #text >= 32
      if is_full then
        local wants, _, until_then, ask_at = struct.unpack('<dddd', text)
        is_full = wants <= limit and until_then > now and (ask_at <= next_end or #text == 32)
      end
    end
    local new = last_fence < micros and micros or last_fence + 1 -- its fence, or its ticket
    local text, reply -- the id's record, and what is answered with it
    if is_full and not waits then
      if waiting == 0 then
        local first = call('ZRANGE', holders, '0', '0', 'WITHSCORES')[2] -- text: a number takes as long as its command
        return {'denied', first == 'inf' and -1 or first - now, in_use, limit, 0, now}
      end
    elseif is_full and (expiry == 0 or now + wait_ms <= expiry) then
      call('ZADD', queue, new, id)
      if waiting == 0 and expiry ~= 0 then call('PEXPIREAT', queue, expiry) end
      local nth = call('ZRANGE', holders, waiting, waiting, 'WITHSCORES')[2] -- the end that it waits for, as far as is known
      local third = math.max(1, math.floor(wait_ms / 3))
      local retry_after = nth and nth ~= 'inf' and math.min(nth - now, third) or third
      text = struct.pack('<dddd', 1, lease_ms, now + wait_ms, now + retry_after) .. inbox
      reply, gate = {'queued', new, waiting + 1, retry_after, in_use, limit, now}, 0
    elseif agreed and in_use < limit and waiting == 0 then
      local ends = now + lease_ms
      if ends >= next_end and ends <= last_end and (held > 0 or last_end - ends <= 1000) then
        call('ZADD', holders, ends, id)
        if held == 0 and expiry ~= 0 then call('PEXPIREAT', holders, expiry) end -- an empty key was deleted
        text, reply, gate = struct.pack('<d', new), {'granted', 1, new, ends, now, in_use + 1, limit}, 2
      end
    end
    if text then
      local packed = struct.pack(STATE, limit, extra, next_end, last_end, expiry, new, pinned, gate)
      call('HSET', meta, 'the state', packed, id, text)
      return reply
    end
  end
end
-- Part: checks of arguments. The first problem found is the reply, and it is given before anything is written.
local problem

local function refuse(text)
  problem = problem or 'LUAGATE ' .. text
end

-- ARGV[at] as a number: decimal digits and nothing else (tonumber alone takes '0x3', '1e0' and ' 2 '). Here and in what
-- follows, `text + 0` is the number that a text of digits stands for; tonumber takes twice as long.
local function number(at, name, least, most)
  local text = ARGV[at]
  if text == '0' and least == 0 then return 0 end
  local value = text and string.find(text, '^%d+$') and text + 0
  if not value or value < least or value > most then
    refuse(string.format('%s: takes %.0f to %.0f, in decimal digits', name, least, most))
    return least
  end
  return value
end

-- ARGV[at] as a word: 1 to `most` bytes, none of them white space or a control character.
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not string.find(text, '^[!-~\128-\255]+$') then
    refuse(name .. ': takes 1 to ' .. most .. ' bytes without white space or control characters')
  end
  return text
end

-- How many keys and arguments there are, so that a client that forgot one is told which there should be. `optional`: so many of
-- the last arguments may be left out.
local function takes(keys, key_count, arguments, count, optional)
  if #KEYS ~= key_count then refuse('keys: takes ' .. key_count .. ': ' .. keys) end
  local least = count - (optional or 0)
  if #ARGV > count or #ARGV < least then
    -- Some clients remove white space at the end of an error, so none ends in it.
    local shown = count > 0 and ': ' .. arguments or ''
    refuse('arguments: takes ' .. (optional and least .. ' or ' or '') .. count .. shown)
  end
end
-- Part: what is stored, as the scripts use it once no plain case was met: the record of an id, and the scores of `holders`.
local NEVER = math.huge
local readable = is_known or not state
pinned = pinned == 1
local closed = gate == 1

-- A holder: its fence and its permits. Nothing for a waiter.
local function holding(text)
  if text and #text == 8 then return struct.unpack('<d', text), 1 end
  if text and #text == 16 then return struct.unpack('<dd', text) end
end

local function holder_text(fence, permits)
  return permits == 1 and struct.pack('<d', fence) or struct.pack('<dd', fence, permits)
end

-- A waiter: permits, lease_ms, until when it has patience, when it asks again, its inbox. Nothing for a holder.
local function waiter(text)
  if not text or #text < 32 then return end
  local permits, lease_ms, patience, ask_at = struct.unpack('<dddd', text)
  return permits, lease_ms, patience, ask_at, string.sub(text, 33)
end

local function waiter_text(permits, lease_ms, patience, ask_at, inbox)
  return struct.pack('<dddd', permits, lease_ms, patience, ask_at) .. inbox
end

-- A score as a time in a reply: -1 stands for never.
local function as_time(score)
  return score == 'inf' and -1 or tonumber(score)
end
-- Part: how many hold and wait, and whether the three keys agree. Every grant that is not plain passes here. Writes nothing.
held = held or call('ZCARD', holders)
waiting = gate ~= 2 and waiting or call('ZCARD', queue)
fields = fields or call('HLEN', meta) -- the state, and the records

-- A key that was evicted, or restored without the others, shows as a record too many or too few.
local agreed = readable
if agreed and state then
  agreed = fields == 1 + waiting + (closed and 0 or held)
  if closed and held == 0 and last_end > now then agreed = false end -- `holders` was lost while it was closed
elseif agreed then
  agreed = fields + held + waiting == 0
end

-- While the gate is closed nothing fits, whatever the limit.
local in_use = closed and 2147483647 or held + extra

-- How many permits are in use, as a reply has it.
local function used()
  return closed and limit or in_use
end
-- Part: what goes with every change of a lease: the bounds on all leases, the TTL, the text of the state.
local changed = false -- 'the state' is to be written
local grown = false   -- the keys' TTL is to be set
local wrote = false   -- this script has written, so nothing is refused any more when memory is full

-- Keys that end with this very ms live on: an end that is not ahead would delete what the script writes.
if state and expiry ~= 0 and expiry <= now then expiry, changed, grown = now + 60000, true, true end

local function state_text()
  changed = false
  return struct.pack(STATE, limit, extra, next_end, last_end, expiry, last_fence, pinned and 1 or 0,
    closed and 1 or waiting == 0 and 2 or 0)
end

local function set_ttl(key)
  wrote = true
  if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
end

-- Keeps the bounds and the TTL ahead of a lease that ends at `ends`. Up to a second in advance, so that few grants and
-- refreshes change them: what looks lost later may keep the gate closed for that much longer, never shorter.
local function cover(ends)
  if ends < next_end then next_end, changed = ends, true end
  if ends == NEVER then
    if expiry ~= 0 then expiry, changed, grown = 0, true, true end
  elseif ends > last_end then
    last_end, changed = ends + math.min(1000, math.floor((ends - now) / 8)), true
    if expiry ~= 0 and expiry < ends + 60000 then expiry, grown = ends + 60000, true end
  end
end

-- A permanent lease keeps the state for ever. Once none is left (`but`: the one that is about to end) and the limit is
-- not pinned, the TTL comes back.
local function expire_again(but)
  if expiry ~= 0 or pinned then return end
  local last = call('ZREVRANGE', holders, 0, 1, 'WITHSCORES')
  local ends = last[last[1] == but and 4 or 2]
  if ends ~= 'inf' then
    -- Whoever waits asks every few seconds, which makes the keys live for as long as it waits.
    expiry, changed, grown = math.max(last_end - 1000, tonumber(ends or 0), now) + 60000, true, true
  end
end
-- Part: granting, freeing, and starting afresh after a loss.

-- The next number of this semaphore, for a fence or a ticket. Grows also when the key was lost, by the clock.
local function next_number()
  last_fence = math.max(last_fence + 1, micros)
  return last_fence
end

-- Gives `permits` to `who`, with the fence that was given last.
local function grant(who, permits, lease_ms)
  local ends = lease_ms == 0 and NEVER or now + lease_ms
  extra = extra + permits - 1
  if held == 0 and last_end > ends + 1000 then last_end = 0 end -- of leases that are over
  cover(ends)
  call('ZADD', holders, lease_ms == 0 and '+inf' or ends, who)
  call('HSET', meta, 'the state', state_text(), who, holder_text(last_fence, permits))
  if held == 0 and not grown and expiry ~= 0 then set_ttl(holders) end -- an empty key was deleted, its TTL with it
  held, in_use = held + 1, in_use + permits
end

-- What these holders weigh beyond one each.
local function extra_of(ids)
  local more = 0
  for _, text in ipairs(extra > 0 and call('HMGET', meta, unpack(ids)) or {}) do
    local _, permits = holding(text)
    more = more + (permits or 1) - 1
  end
  return more
end

-- Takes everything back from these holders (at most 100), which weigh so much more than one each.
local function free(ids, more)
  if more > 0 then extra, changed = extra - more, true end
  local gone = call('ZREM', holders, unpack(ids))
  wrote = true
  if call('HDEL', meta, unpack(ids)) ~= #ids or gone ~= #ids then agreed = false end
  held, in_use = held - gone, in_use - gone - more
end

-- The keys disagree, so who holds what is not known, only until when: the last lease in `holders`, and the bound on all that
-- end. The gate closes until both have passed, or until the bound has and all who are known gave back.
local function close()
  local latest = call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2]
  local known = tonumber(latest or 0)
  call('UNLINK', meta, queue)
  wrote = true
  if readable and state and last_end > now then -- stays when those who are known gave back
    call('ZADD', holders, last_end, 'lost leases') -- a space: no id can be this
    known = math.max(known, last_end)
  end
  closed = true
  agreed, waiting, extra, record = true, 0, 0, false
  next_end, last_end = NEVER, known == NEVER and last_end or known
  expiry = (pinned or known == NEVER) and 0 or math.max(known, now) + 60000
  held, in_use, changed, grown = call('ZCARD', holders), 2147483647, true, true
end

-- Brings the state up to now: closes, opens again, or takes back what has ended.
local function settle()
  if not agreed then close() end
  if closed then
    if call('ZCOUNT', holders, '(' .. now, '+inf') > 0 then return end
    call('UNLINK', holders)
    closed, held, extra, in_use, next_end, changed = false, 0, 0, 0, NEVER, true
    expire_again()
  elseif now >= next_end then
    next_end, changed = NEVER, true
    if held == 0 then return end
    local ended = call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100)
    if #ended > 0 then free(ended, extra_of(ended)) end
    if not agreed then return settle() end
    local first = call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
    if first and first ~= 'inf' then next_end = tonumber(first) end
  end
end

-- Writes what has changed beside the permits. The last step of every script that writes.
local function save()
  if changed and not wrote then set_ttl(meta) end -- first, since this is allowed when memory is full
  if changed then call('HSET', meta, 'the state', state_text()) end
  if grown then
    set_ttl(meta)
    if held > 0 then set_ttl(holders) end
    if waiting > 0 then set_ttl(queue) end
  end
end
-- Part: who waits, who still listens, and what they are told.

-- The channel of an inbox, and the secret of this wait, where one follows it.
local function channel_of(inbox)
  local at = string.find(inbox, '#', 1, true)
  if not at then return inbox end
  return string.sub(inbox, 1, at - 1), string.sub(inbox, at + 1)
end

-- A number as text: what %.0f makes of it, in half the time, and as many digits as a 32-bit server can take at once.
local function digits(value)
  if value < 1000000000 then return string.format('%d', value) end
  return string.format('%d%09d', value / 1000000000, value % 1000000000)
end

-- A message: a grant, or with `fence` 0 a hint to ask again at `at`. Anybody may publish, so to a waiter that gave a secret
-- it ends with a signature. False when it could not be sent.
local function tell(inbox, who, permits, fence, at)
  local channel, secret = channel_of(inbox)
  local message = string.format('%s %d %s %s %s', who, permits, digits(fence), digits(at), digits(now))
  if secret then message = message .. ' ' .. redis.sha1hex(secret .. message) end
  local sent = redis.pcall('PUBLISH', channel, message)
  return type(sent) == 'number'
end

-- The waiters at these places, and their records.
local function look(first, last)
  local ids = call('ZRANGE', queue, first, last)
  return ids, #ids > 0 and call('HMGET', meta, unpack(ids)) or {}
end

-- Tells the head to ask at `at` (`now`: at once) if it plans to sleep longer, and remembers that it was told.
local function rouse(who, text, at)
  local permits, lease_ms, patience, ask_at, inbox = waiter(text)
  if inbox and inbox ~= '' and ask_at > at then
    if not wrote then set_ttl(queue) end -- first, since this is allowed when memory is full
    call('HSET', meta, who, waiter_text(permits, lease_ms, patience, at, inbox))
    tell(inbox, who, 0, 0, at == now and 0 or at)
  end
end
-- Part: the queue. Serves its head, then the next, while what is free is enough for it.
local head_until      -- patience of the waiter that stays at the head, where one was seen
local stopped = false -- the bound was reached: there is more to do, and somebody must ask again at once

local function leave_queue(who)
  call('ZREM', queue, who)
  wrote = true
  waiting = waiting - 1
end

-- Whether somebody listens to the inbox of each of these waiters; to no inbox, nobody has to. Only exact subscribers of
-- this very node count: the number that PUBLISH returns has others in it, and not all of them.
local function listening(texts)
  local channels = {}
  for i, text in ipairs(texts) do channels[i] = channel_of(select(5, waiter(text)) or '') end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
  local heard = {}
  for i, channel in ipairs(channels) do heard[i] = channel == '' or (counts[2 * i] or 0) > 0 end
  return heard
end

-- Tells the next waiter that lives to ask at once: a script that stopped at its bound leaves the rest to it.
local function call_next()
  for first = 0, 900, 100 do
    local ids, texts = look(first, first + 99)
    if #ids == 0 then return end
    local heard = listening(texts)
    for i, who in ipairs(ids) do
      local _, _, patience, _, inbox = waiter(texts[i])
      if patience and patience > now and heard[i] and inbox ~= '' then return tell(inbox, who, 0, 0, 0) end
    end
  end
end

-- Grants what is free to the head of the queue, then to the next. Whoever is gone leaves the queue unpublished, whoever
-- wants more than the limit leaves it with a hint. At most 100 at a time.
-- `me` is the id that is calling, which needs no message: returns true when its turn has come and enough is free.
local function serve(me, my_permits)
  local seen = 0
  while waiting > 0 and seen < 100 do
    local ids, texts = look('0', seen == 0 and '1' or 99 - seen) -- most often one is served, and one comes to the head
    if #ids == 0 then return false end -- cannot be, and must not go on for ever
    local heard
    for i, who in ipairs(ids) do
      seen = seen + 1
      if who == me then return in_use + my_permits <= limit end
      local permits, lease_ms, patience, _, inbox = waiter(texts[i])
      local alive = patience and patience > now
      if alive and in_use < limit then -- only who could be granted, or keeps others from it, has to listen
        heard = heard or listening(texts)
        alive = heard[i]
      end
      if alive and permits <= limit then
        if inbox == '' or in_use + permits > limit then -- stays at the head; without an inbox its permits are kept for it
          head_until = patience
          rouse(who, texts[i], math.max(next_end, now))
          return false
        end
        leave_queue(who) -- first, since this is allowed when memory is full, and everything is after it
        local fence = next_number() -- the script is atomic: nobody sees the message before the permit
        if tell(inbox, who, permits, fence, lease_ms == 0 and -1 or now + lease_ms) then
          grant(who, permits, lease_ms)
        else
          call('HDEL', meta, who)
        end
      else
        leave_queue(who)
        call('HDEL', meta, who)
        if alive then tell(inbox, who, 0, 0, 0) end
      end
    end
  end
  if waiting > 0 then
    stopped = true
    call_next()
  end
  return false
end
-- Part: when somebody who was not granted should ask again.

-- For place k in line, the time until the k-th lease to end has ended. Nothing where that never ends.
local function end_of(place_in_line)
  local score = closed and call('ZREVRANGE', holders, '0', '0', 'WITHSCORES')[2]
    or call('ZRANGE', holders, place_in_line - 1, place_in_line - 1, 'WITHSCORES')[2]
  if score and score ~= 'inf' then return math.max(1, tonumber(score) - now) end
end

-- For whoever does not stand in line.
local function ask_again()
  return stopped and 1 or end_of(1) or head_until and math.max(1, head_until - now) or -1
end

takes('meta holders queue', 3, 'id permits limit lease_ms wait_ms inbox ticket', 7)
local id, want, inbox = word(1, 'id', 200), ARGV[2] ~= 'all' and number(2, 'permits', 1, 2147483647), ARGV[6]
local declared = number(3, 'limit', 0, 2147483647)
local lease_ms = number(4, 'lease_ms', 0, 3155760000000)
local wait_ms = number(5, 'wait_ms', 0, inbox == '' and 60000 or 86400000)
local ticket = number(7, 'ticket', 0, 4503599627370496)
if inbox ~= '' then
  local text = word(6, 'inbox', 300)
  if string.find(text, '^#') or string.find(text, '^[^#]*#$') then refuse('inbox: takes <channel> or <channel>#<secret>') end
end
if problem then return redis.error_reply(problem) end

-- The same id again: what it holds is told, whatever has become of the limit.
local fence, weight = holding(record)
local ends = fence and call('ZSCORE', holders, id)
if ends and tonumber(ends) > now then
  return {'held', weight, fence, as_time(ends), now, used(), limit}
end

local stored_limit = limit
if stored_limit == 0 then limit = declared end -- stored by the first grant
if limit == 0 then refuse('no limit: none is stored for this semaphore, so the caller must declare one') end
if problem then return redis.error_reply(problem) end

if fence then -- what its ended lease still occupies is freed first
  record = false
  if agreed then free({id}, weight - 1) end
end
settle()
local place = record and call('ZSCORE', queue, id)

if want and want > limit then
  if place then
    leave_queue(id)
    call('HDEL', meta, id)
  end
  if waiting > 0 then serve() end
  if stored_limit > 0 then save() end -- only a grant stores a limit
  return {'above_limit', limit, now}
end

local function granted()
  local permits = want or limit - in_use
  local given_fence = next_number()
  grant(id, permits, lease_ms)
  if waiting > 0 then serve() end
  save()
  return {'granted', permits, given_fence, lease_ms == 0 and -1 or now + lease_ms, now, used(), limit}
end

if waiting == 0 and in_use + (want or 1) <= limit then return granted() end

if wait_ms > 0 and want then
  local is_new = not place and ticket == 0
  if place then
    ticket = tonumber(place)
  else
    if is_new then next_number() else last_fence = math.max(last_fence, ticket) end
    if is_new then ticket = last_fence end
    call('ZADD', queue, ticket, id)
    waiting = waiting + 1
    if waiting == 1 and expiry ~= 0 then set_ttl(queue) end
  end
  if (place or waiting > 1) and serve(id, want) then -- who came first was not granted just now
    leave_queue(id)
    return granted()
  end
  local position = is_new and waiting or call('ZRANK', queue, id) + 1 -- a new ticket is the highest
  -- Who asks again looks whether anybody lives in front of it; if nobody does, the head's watch is its own.
  local watch = position
  if place and position > 1 and position <= 10 then
    local _, texts = look(0, position - 2)
    watch = 1
    for _, alive in ipairs(listening(texts)) do
      if alive then watch = position end
    end
  end
  local third = math.max(1, math.floor(wait_ms / 3))
  local retry_after = stopped and 1 or math.min(end_of(watch) or third, third)
  local patience = now + wait_ms
  if expiry ~= 0 and patience > expiry then expiry, grown = patience + 60000, true end
  call('HSET', meta, 'the state', state_text(), id, waiter_text(want, lease_ms, patience, now + retry_after, inbox))
  save()
  return {'queued', ticket, position, retry_after, used(), limit, now}
end

-- Does not wait: granted when its own place is at the head, or when the line in front turns out to be empty.
if waiting > 0 and serve(place and id, want or 1) then
  leave_queue(id)
  return granted()
end
if place then
  leave_queue(id)
  call('HDEL', meta, id)
  serve()
end
if waiting == 0 and in_use + (want or 1) <= limit then return granted() end
save()
return {'denied', ask_again(), used(), limit, waiting, now}
