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

-- include: clock.lua
-- include: semaphore/read.lua
-- include: semaphore/plain_acquire.lua
-- include: arguments.lua
-- include: semaphore/record.lua
-- include: semaphore/agreement.lua
-- include: semaphore/change.lua
-- include: semaphore/grant.lua
-- include: semaphore/queue.lua
-- include: semaphore/serve.lua
-- include: semaphore/denial.lua

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
