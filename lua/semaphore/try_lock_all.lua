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
-- include: checks.lua
local id, lease_ms = word(1, 'id', 200), number(2, 'lease_ms', 0, 3155760000000)
if #ARGV ~= 2 then refuse('arguments: takes 2: id lease_ms') end
if #KEYS % 3 ~= 0 or #KEYS < 3 or #KEYS > 192 then refuse('keys: takes meta holders queue of 1 to 64 mutexes') end
local seen_keys, tag = {}, string.match(KEYS[1] or '', '{(.-)}')
for _, key in ipairs(KEYS) do
  if seen_keys[key] then refuse('keys: takes each mutex once, got ' .. key .. ' twice') end
  if not tag or string.match(key, '{(.-)}') ~= tag then refuse('keys: takes mutexes of one hash tag') end
  seen_keys[key] = true
end
if problem then return redis.error_reply(problem) end
-- include: clock.lua
-- Reads one mutex, with its three keys. What it returns does the rest; nothing is written before.
local function open(KEYS)
  -- include: semaphore/load.lua
  local waiting, gives_back = call('ZCARD', queue)
  -- include: semaphore/count.lua
  local own_end = fence and call('ZSCORE', holders, id)
  local is_held = own_end and tonumber(own_end) > now
  local lock = {is_held = is_held, fence = fence, ends = is_held and (own_end == 'inf' and -1 or tonumber(own_end))}
  local stored_limit, can_have = limit
  limit = math.max(limit, 1)
  -- Brings it up to now and serves the line. With `asks` it is granted to the caller, where it is free and nobody waits.
  -- Returns whether the caller has it, or can have it.
  function lock.advance(asks)
    if is_held then return true end
    -- include: semaphore/expire.lua
    -- include: semaphore/messages.lua
    if record and not fence then -- its place in line
      call('ZREM', queue, id)
      call('HDEL', meta, id)
      waiting, record = waiting - 1, false
    end
    local serves, waits, want, patience_until = true, false, 1, nil
    -- include: semaphore/serve.lua
    if given then lock.fence, lock.ends = given, lease_ms == 0 and -1 or now + lease_ms end
    can_have = waiting == 0 and in_use < limit
    if not can_have and not given then
      -- include: semaphore/next_expiry.lua
      lock.denial = {next_expiry, suspended and limit or in_use, limit, waiting, now}
    end
    return can_have
  end
  function lock.save(is_denied)
    if is_denied and is_held then
      consistent = call('ZREM', holders, id) == 1 and call('HDEL', meta, id) == 1
      held, in_use, extra_weight, fence, record = held - 1, in_use - weight, extra_weight - weight + 1, nil, nil
      is_held, changed, lease_ended = false, true, true
      lock.advance(false)
    end
    if can_have then limit = stored_limit end -- only a grant stores a limit
    -- include: semaphore/write.lua
  end
  return lock
end
local locks = {}
for i = 1, #KEYS, 3 do
  local lock = open({KEYS[i], KEYS[i + 1], KEYS[i + 2]})
  if lock.err then return lock end
  locks[#locks + 1] = lock
end
local all_held, in_the_way = true, nil
for place, lock in ipairs(locks) do
  all_held = all_held and lock.is_held
  if not lock.advance(false) then in_the_way = in_the_way or place end
end
if in_the_way then
  for _, lock in ipairs(locks) do lock.save(true) end
  return {'denied', in_the_way, unpack(locks[in_the_way].denial)}
end
local told = {}
for place, lock in ipairs(locks) do
  lock.advance(true)
  lock.save(false)
  told[place] = {lock.fence, lock.ends}
end
return {all_held and 'held' or 'granted', now, told}
