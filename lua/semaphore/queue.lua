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
