-- Part: for all calls that write: the count, the TTL, and the messages to waiters.
-- In   call, now, latch, waiters, fields, waiting, count, counted, expiry
-- Out  count, expiry, clear, start, save, tell

-- Deletes the state and the ids.
local function clear()
  if fields > 0 then call('UNLINK', latch) end
  fields = 0
end

-- Takes the stored count, or this one if none is stored. Keeps the keys for at least `ms` from now.
local function start(declared, ms)
  if count == 0 then
    clear() -- fields without a state belong to no latch
    count = declared
  end
  expiry = math.max(expiry, now + ms)
end

-- Writes the state, and that `id` has counted.
local function save(id)
  if fields > 0 then call('PEXPIREAT', latch, expiry) end -- first, since PEXPIREAT is allowed when memory is full
  local text = count .. ' ' .. counted .. ' ' .. expiry
  if id then
    call('HSET', latch, 'the state', text, id, '')
  else
    call('HSET', latch, 'the state', text)
  end
  if fields == 0 then call('PEXPIREAT', latch, expiry) end
end

-- Sends a message to at most 100 waiters: each of them asks again, and that call sends one to the next 100. The waiter whose
-- wait ends last comes first: it is the most likely to be alive, and would sleep longest.
local function tell()
  if waiting == 0 then return end
  local inboxes = call('ZREVRANGEBYSCORE', waiters, '+inf', '(' .. now, 'LIMIT', 0, 100)
  for _, inbox in ipairs(inboxes) do
    redis.pcall('PUBLISH', inbox, latch .. ' 0 0 0 ' .. now) -- an ACL may forbid it; the rest of the call must still run
  end
  if #inboxes < 100 then -- all waiters got one; the rest of the waits have ended
    call('UNLINK', waiters)
  else
    call('ZREM', waiters, unpack(inboxes))
  end
end
