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
