-- Part: what goes with every call that writes: the count, the life, and telling those who wait.

-- Forgets the ids.
local function clear()
  if fields > 0 then call('UNLINK', latch) end
  fields = 0
end

-- The count in force is the stored one, or from now on this one; the keys live for `ms` from now at least.
local function start(declared, ms)
  if count == 0 then
    clear() -- what is there, but has no state, is nothing of ours
    count = declared
  end
  expiry = math.max(expiry, now + ms)
end

-- Writes the state, and that `id` has counted.
local function save(id)
  if fields > 0 then call('PEXPIREAT', latch, expiry) end -- first, since this is allowed when memory is full
  local text = count .. ' ' .. counted .. ' ' .. expiry
  if id then
    call('HSET', latch, 'the state', text, id, '')
  else
    call('HSET', latch, 'the state', text)
  end
  if fields == 0 then call('PEXPIREAT', latch, expiry) end
end

-- Tells who waits that the latch is open, at most 100 at a time: each of them asks, and whoever asks tells the next.
-- Who asked last comes first: that one lives most likely, and would sleep longest.
local function tell()
  if waiting == 0 then return end
  local inboxes = call('ZREVRANGEBYSCORE', waiters, '+inf', '(' .. now, 'LIMIT', 0, 100)
  for _, inbox in ipairs(inboxes) do
    redis.pcall('PUBLISH', inbox, latch .. ' 0 0 0 ' .. now) -- may be forbidden, which must not stop the others
  end
  if #inboxes < 100 then -- all are told; what is left has stopped waiting
    call('UNLINK', waiters)
  else
    call('ZREM', waiters, unpack(inboxes))
  end
end
