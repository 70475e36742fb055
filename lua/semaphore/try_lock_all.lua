-- semaphore/try_lock_all: locks several mutexes at once, all or none. Running it again with the same id grants nothing twice.
--
-- KEYS  meta holders queue ...
--                 of 1 to 64 mutexes, all with one hash tag
-- ARGV  id        who asks, the same for all
--       lease_ms  how long they are held unless refreshed; 0: permanent
-- REPLY granted now locks
--       held    now locks
--       denied  place next_expiry in_use limit waiting now
--
-- `locks` is a list for each mutex, in the order of KEYS: fence expires_at. `place` tells the first that is in the way, from 1:
-- it is held, or somebody waits for it. After `denied` the id has none of them, nor a place in line.

-- include: clock.lua
-- include: arguments.lua

-- One of the mutexes, whose keys are KEYS here, and what ARGV[1] has of it. Everything is read, and nothing is written.
local function open(KEYS)
  -- include: semaphore/read.lua
  -- include: semaphore/record.lua
  -- include: semaphore/agreement.lua
  -- include: semaphore/change.lua
  -- include: semaphore/grant.lua
  -- include: semaphore/queue.lua
  -- include: semaphore/serve.lua
  -- include: semaphore/denial.lua

  local id = ARGV[1]
  local fence, permits = holding(record)
  local ends = fence and call('ZSCORE', holders, id)
  local is_held = ends and tonumber(ends) > now
  local lock = {save = save, is_held = is_held, fence = fence, ends = is_held and as_time(ends)}

  -- Brings it up to now, and tells whether the id has it or can have it. Whoever waits comes first.
  function lock.is_free()
    if is_held then return true end
    local before = limit
    if limit == 0 then limit = 1 end
    if fence and agreed then free({id}, permits - 1) end -- what its ended lease still occupies
    settle()
    if record and not fence then
      leave_queue(id)
      call('HDEL', meta, id)
    end
    if waiting > 0 then serve() end
    local mine = waiting == 0 and in_use < limit
    if mine then limit = before end -- only a grant stores it
    return mine
  end

  function lock.take(lease_ms)
    if is_held then return end
    limit = math.max(limit, 1)
    next_number()
    grant(id, 1, lease_ms)
    lock.fence, lock.ends = last_fence, lease_ms == 0 and -1 or now + lease_ms
  end

  function lock.give_back()
    free({id}, permits - 1)
    settle()
    if not closed then
      expire_again()
      serve()
    end
  end

  function lock.denial(place)
    return {'denied', place, ask_again(), used(), limit, waiting, now}
  end

  return lock
end

word(1, 'id', 200)
local lease_ms = number(2, 'lease_ms', 0, 3155760000000)
if #ARGV ~= 2 then refuse('arguments: takes 2: id lease_ms') end
if #KEYS % 3 ~= 0 or #KEYS < 3 or #KEYS > 192 then refuse('keys: takes meta holders queue of 1 to 64 mutexes') end
local seen, tag = {}, string.match(KEYS[1] or '', '{(.-)}')
for _, key in ipairs(KEYS) do
  if seen[key] then refuse('keys: takes each mutex once, got ' .. key .. ' twice') end
  if not tag or string.match(key, '{(.-)}') ~= tag then refuse('keys: takes mutexes of one hash tag') end
  seen[key] = true
end
if problem then return redis.error_reply(problem) end

local locks = {}
for i = 1, #KEYS, 3 do locks[#locks + 1] = open({KEYS[i], KEYS[i + 1], KEYS[i + 2]}) end

local all_held, in_the_way = true, nil
for place, lock in ipairs(locks) do
  all_held = all_held and lock.is_held
  if not lock.is_free() then in_the_way = in_the_way or place end
end
if in_the_way then
  for _, lock in ipairs(locks) do
    if lock.is_held then lock.give_back() end
    lock.save()
  end
  return locks[in_the_way].denial(in_the_way)
end

local told = {}
for place, lock in ipairs(locks) do
  lock.take(lease_ms)
  lock.save()
  told[place] = {lock.fence, lock.ends}
end
return {all_held and 'held' or 'granted', now, told}
