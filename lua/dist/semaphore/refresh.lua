-- semaphore/refresh: a new lease for a permit, counted from now. Never brings back what is lost.
--
-- KEYS  meta holders queue
-- ARGV  id
--       lease_ms   0: permanent
--       fence      only the permit with this fence; 0 or left out: whatever the id holds
-- REPLY refreshed permits fence expires_at now
--       lost      now

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
-- Part: most calls of semaphore/refresh, fast: one permit, whose new lease ends later than the one before, and within the
-- bounds that are known. The rest of the script does the same, and everything else.
if limit > 0 and record and #record == 8 and ARGV[2] and not ARGV[3] and not KEYS[4] then
  local id, lease_ms = ARGV[1], ARGV[2]
  local ends = #lease_ms < 13 and string.find(lease_ms, '^%d+$') and now + lease_ms
  if ends and ends > now and ends <= last_end and (expiry == 0 or now < expiry) then
    local before = call('ZSCORE', holders, id)
    if before and now < before + 0 and ends >= before + 0 and redis.pcall('ZADD', holders, ends, id) == 0 then
      return {'refreshed', 1, struct.unpack('<d', record), ends, now}
    end -- it ends earlier, or memory is full
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

takes('meta holders queue', 3, 'id lease_ms fence', 3, 1)
local id, lease_ms = word(1, 'id', 200), number(2, 'lease_ms', 0, 3155760000000)
local only = ARGV[3] and number(3, 'fence', 0, 4503599627370496) or 0
if problem then return redis.error_reply(problem) end

local fence, permits = holding(record)
local before = call('ZSCORE', holders, id)
waiting = waiting or call('ZCARD', queue)
if not fence or only > 0 and fence ~= only or not before or tonumber(before) <= now then return {'lost', now} end

local ends = lease_ms == 0 and NEVER or now + lease_ms
if before == 'inf' and lease_ms > 0 then expire_again(id) end
cover(ends)
set_ttl(holders) -- first, since this is allowed when memory is full, and everything is after it
call('ZADD', holders, lease_ms == 0 and '+inf' or ends, id)
if changed then call('HSET', meta, 'the state', state_text()) end
if grown then
  set_ttl(meta)
  if waiting > 0 then set_ttl(queue) end
end
if waiting > 0 and ends < tonumber(before) then -- the head may plan to sleep longer
  local ids, texts = look(0, 0)
  rouse(ids[1], texts[1], ends)
end
return {'refreshed', permits, fence, lease_ms == 0 and -1 or ends, now}
