-- semaphore/release: releases permits, or a place in line. A repeated call changes nothing more.
--
-- KEYS  meta holders queue
-- ARGV  id
--       keep    how many permits to keep; 0: releases all. Permits released before their minimum hold ended stay in use until
--               then
--       fence   only the permit with this fence, or the place in line with this ticket; 0 or left out: any of this id
-- REPLY released  left in_use limit
--       cancelled   the id was in line; the waiter receives a message
--       gone        the lease had ended, or the permit was released before, or the id has another fence or ticket now
-- include: arguments.lua
if #ARGV ~= 2 and #ARGV ~= 3 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 2 or 3: id keep fence')
end
local id, keep, only, problem = ARGV[1], ARGV[2], ARGV[3] or '0', nil
keep = keep == '0' and 0 or find(keep, DIGITS) and keep + 0 or -1
only = only == '0' and 0 or find(only, DIGITS) and only + 0 or -1
-- include: clock.lua
-- include: semaphore/load.lua
-- acquire checked the id of a holder without a minimum hold. Some other fields of meta are not ids.
problem = problem or (not fence or least_end > 0) and (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or (keep < 0 or keep > 2147483647) and string.format(NO_NUMBER, 'keep', 0, 2147483647)
  or (only < 0 or only > 9007199254740991) and string.format(NO_NUMBER, 'fence', 0, 9007199254740991)
if problem then return redis.error_reply(problem) end
if only > 0 and record and (fence or tonumber(call('ZSCORE', queue, id) or 0)) ~= only then
  record, fence = false, nil -- they belong to a later call with the same id
end
local waiting = fence and line_is_empty and 0 or nil -- nil: not read yet
local gives_back = fence and now < next_end -- before next_end no lease has ended
-- include: semaphore/count.lua
-- include: semaphore/messages.lua
local word, leaves_last = 'gone'
local is_live = gives_back or (fence or suspended or not consistent) and tonumber(call('ZSCORE', holders, id) or 0) > now
if record and keep > 0 then
  if is_live and keep > (weight or 0) or not fence then
    return redis.error_reply('LUAGATE keep: more permits than this id holds. Accepted: 0 to ' .. (weight or 0))
  end
  if is_live and consistent then
    word = 'released'
    local text = keep == 1 and least_end <= now and struct.pack(PLAIN_HOLDER, fence)
      or struct.pack(HOLDER, fence, keep, least_end)
    -- include: semaphore/cool.lua
    records = records or {}
    records[#records + 1], records[#records + 2] = id, text
    extra_weight, in_use, fence = extra_weight - weight + keep, in_use - weight + keep, nil
  end
elseif not consistent or suspended and not record then
  -- A holder that is still known can release. The number of its permits and its fence are unknown.
  if is_live and keep == 0 and (only == 0 or fence) then
    call('ZREM', holders, id)
    word, lease_ended = 'released', true
  end
elseif fence then
  if is_live then
    word = 'released'
    -- include: semaphore/cool.lua
  end
  call('HDEL', meta, id)
  if waiting > 0 and held == 1 and gives_back then
    leaves_last = true -- else the server deletes the empty key, and creates it again for the next holder
  elseif call('ZREM', holders, id) == 1 then
    held = held - 1
  else
    consistent, word, records = false, 'gone', nil
  end
  in_use = in_use - weight
  if weight > 1 then extra_weight, changed = extra_weight - weight + 1, true end
  fence, wrote, lease_ended = nil, true, true
elseif record and call('ZREM', queue, id) == 0 then
  consistent = false -- the record is of neither a holder nor a waiter
elseif record then
  call('HDEL', meta, id)
  waiting, wrote, changed, word = waiting - 1, true, waiting > 1, 'cancelled'
  local channel, secret = string.match(record, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
  if channel ~= '' then tell(channel, secret, id, 0, 0, -1) end
end
-- include: semaphore/expire.lua
local serves, asks, behind, waits, want, lease_ms, at_least_ms, patience_until = true
-- include: semaphore/serve.lua
if leaves_last then call('ZREM', holders, id) end
-- include: semaphore/write.lua
if word ~= 'released' then return {word} end
return {word, keep, suspended and limit or in_use, limit}
