-- semaphore/release: gives permits back, or a place in the queue. Running it again changes nothing more.
--
-- KEYS  meta holders queue
-- ARGV  id
--       keep    how many permits to keep; 0: gives everything back. What is given back before its minimum hold ended is in use
--               until then
--       fence   only the permit with this fence, or the place in line with this ticket; 0 or left out: whatever the id has
-- REPLY released  left in_use limit
--       cancelled   it was in line; the waiter is sent a message
--       gone        the lease had ended, or it was released before, or the id has something else than this fence by now
-- include: arguments.lua
if #ARGV ~= 2 and #ARGV ~= 3 then
  return redis.error_reply('LUAGATE arguments: wrong number of arguments. Accepted: 2 or 3: id keep fence')
end
local id, keep, only = ARGV[1], ARGV[2], ARGV[3] or '0'
keep = keep == '0' and 0 or find(keep, DIGITS) and keep + 0 or -1
only = only == '0' and 0 or find(only, DIGITS) and only + 0 or -1
-- include: clock.lua
-- include: semaphore/load.lua
-- The id of a holder without a minimum hold was checked by acquire. Some other fields of meta are no ids.
local problem = (not fence or least_end > 0) and (#id > 200 or not find(id, WORD)) and string.format(NO_WORD, 'id', 200)
  or (keep < 0 or keep > 2147483647) and string.format(NO_NUMBER, 'keep', 0, 2147483647)
  or (only < 0 or only > 4503599627370496) and string.format(NO_NUMBER, 'fence', 0, 4503599627370496)
if problem then return redis.error_reply(problem) end
if only > 0 and record and (fence or tonumber(call('ZSCORE', queue, id) or 0)) ~= only then
  record, fence = false, nil -- of a later call with the same id
end
local waiting = fence and head_until == NEVER and 0 or NEVER -- at least one may wait; the line tells, once it is read
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
elseif suspended or not consistent then
  -- A holder that is still known may give back. How many permits it held is not known any more, nor its fence.
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
    leaves_last = true -- else the key is deleted, and made again for the next holder
  elseif call('ZREM', holders, id) == 1 then
    held = held - 1
  else
    consistent, word, records = false, 'gone', nil
  end
  in_use = in_use - weight
  if weight > 1 then extra_weight, changed = extra_weight - weight + 1, true end
  fence, wrote, lease_ended = nil, true, true
elseif record then
  call('ZREM', queue, id)
  call('HDEL', meta, id)
  waiting, wrote, changed, word = waiting - 1, true, waiting > 1, 'cancelled'
  local channel, secret = string.match(record, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
  if channel ~= '' then tell(channel, secret, id, 0, 0, -1) end
end
-- include: semaphore/expire.lua
local serves, asks, waits, want, lease_ms, at_least_ms, patience_until = true
-- include: semaphore/serve.lua
if leaves_last then call('ZREM', holders, id) end
-- include: semaphore/write.lua
if word ~= 'released' then return {word} end
return {word, keep, suspended and limit or in_use, limit}
