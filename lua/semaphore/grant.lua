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
