-- semaphore/try_acquire_several: requests permits of several semaphores at once, all or none. A repeated call with the same id
-- grants nothing twice.
--
-- KEYS  meta holders queue ...
--                 of 1 to 64 semaphores, all with one hash tag
-- ARGV  id        the caller's id, the same for all
--       permits limit lease_ms at_least_ms ...
--                 of each semaphore, as for `acquire`; permits: 1 to the limit in force
-- REPLY granted      now permits
--       held         now permits
--       denied       index next_expiry now usages still_held
--       above_limit  index limit now still_held  more than the limit in force, so never granted
--
-- Lists are in the order of KEYS. `permits` has for each semaphore: permits fence expires_at in_use limit. `index` is the
-- first semaphore that has too few free permits, or has a waiter; from 1. `usages` has for each: in_use limit waiting.
-- `denied` and `above_limit` grant nothing, and the id has no place in line. `still_held`: at how many of them the id has a
-- permit all the same, by an earlier run of this call: if not 0, release it at each.
-- include: checks.lua
local count, seen_keys, asked = #KEYS / 3, {}, {}
local tag = string.match(KEYS[1] or '', '{(.-)}')
if count % 1 ~= 0 or count < 1 or count > 64 then
  refuse('keys: wrong number of keys. Accepted: meta holders queue of 1 to 64 semaphores')
end
for _, key in ipairs(KEYS) do
  if seen_keys[key] then refuse('keys: ' .. key .. ' twice. Accepted: each semaphore once') end
  if not tag or string.match(key, '{(.-)}') ~= tag then
    refuse('keys: no hash tag, or different ones. Accepted: keys with one hash tag')
  end
  seen_keys[key] = true
end
if #ARGV ~= 1 + 4 * count then
  refuse('arguments: wrong number of arguments. Accepted: ' .. 1 + 4 * count
    .. ': id, and permits limit lease_ms at_least_ms of each semaphore')
end
local id = word(1, 'id', 200)
for at = 2, problem and 0 or #ARGV, 4 do
  local permits, limit = number(at, 'permits', 1, 2147483647), number(at + 1, 'limit', 0, 2147483647)
  local lease_ms, at_least_ms = number(at + 2, 'lease_ms', 0, 3155760000000), number(at + 3, 'at_least_ms', 0, 3155760000000)
  if not problem and lease_ms > 0 and lease_ms < at_least_ms then lease_ms = at_least_ms end
  asked[#asked + 1] = {permits, limit, lease_ms, at_least_ms}
end
if problem then return redis.error_reply(problem) end
-- include: clock.lua
-- Reads one semaphore, with its three keys. Writes nothing: the functions that it returns do. Returns nil after a problem.
local function open(KEYS, want, declared, lease_ms, at_least_ms)
  -- include: semaphore/load.lua
  if problem then return end
  local waiting, gives_back = call('ZCARD', queue)
  -- include: semaphore/count.lua
  local stored_limit = limit
  if limit == 0 then limit = declared end
  local in_force = limit
  if limit == 0 then
    problem = 'LUAGATE no limit: the call passes no limit and none is stored. Pass a limit, or store one with `resize`'
    return
  end
  local own_end = fence and call('ZSCORE', holders, id)
  local is_held = own_end and tonumber(own_end) > now
  local one = {is_held = is_held, above_limit = not is_held and want > limit and limit}
  -- Takes back ended leases and serves the line. With `asks` it grants to the caller, if enough is free and no id waits.
  -- Returns whether the caller holds its permits here, or could be granted them.
  function one.advance(asks)
    if is_held then return true end
    -- include: semaphore/expire.lua
    -- include: semaphore/messages.lua
    if record and not fence then -- gives up its place in line
      waiting, record = waiting - call('ZREM', queue, id), false
      call('HDEL', meta, id)
    end
    local serves, behind, waits, patience_until = true, 0, false, nil
    -- include: semaphore/serve.lua
    if given then fence, own_end, is_held = given, lease_ms == 0 and 'inf' or now + lease_ms, true end
    local can_have = is_held or waiting == 0 and in_use + want <= limit
    if not can_have then
      -- include: semaphore/next_expiry.lua
      one.next_expiry = next_expiry
    end
    return can_have
  end
  -- Returns the caller's permit, and the usage of the semaphore.
  function one.save()
    if not is_held then limit = stored_limit end -- only a grant stores a limit
    -- include: semaphore/write.lua
    local used = suspended and in_force or in_use
    return {weight, fence, own_end == 'inf' and -1 or tonumber(own_end), used, in_force}, {used, in_force, waiting}
  end
  return one
end
local all, still_held, blocked, above = {}, 0, nil, nil
for i = 1, count do
  all[i] = open({KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]}, unpack(asked[i]))
  if problem then return redis.error_reply(problem) end
end
for index, one in ipairs(all) do
  if one.is_held then still_held = still_held + 1 end
  above = above or one.above_limit and index
  if not one.advance(false) then blocked = blocked or index end
end
local permits, usages = {}, {}
for index, one in ipairs(all) do
  if not (above or blocked) then one.advance(true) end
  permits[index], usages[index] = one.save()
end
if above then return {'above_limit', above, all[above].above_limit, now, still_held} end
if blocked then return {'denied', blocked, all[blocked].next_expiry, now, usages, still_held} end
return {still_held == count and 'held' or 'granted', now, permits}
