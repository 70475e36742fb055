-- semaphore/release: gives permits back, or a place in the queue. Running it again changes nothing more.
--
-- KEYS  meta holders queue
-- ARGV  id
--       keep    how many permits to keep; 0: gives everything back
--       fence   only the permit with this fence, or the place in line with this ticket; 0 or left out: whatever the id has
-- REPLY released  left in_use limit
--       cancelled   it was in line; the waiter is sent a message
--       gone        the lease had ended, or it was released before, or the id has something else than this fence by now

-- include: clock.lua
-- include: semaphore/read.lua
-- include: semaphore/plain_release.lua
-- include: semaphore/plain_hand_over.lua
-- include: arguments.lua
-- include: semaphore/record.lua
-- include: semaphore/agreement.lua
-- include: semaphore/change.lua
-- include: semaphore/grant.lua
-- include: semaphore/queue.lua
-- include: semaphore/serve.lua

takes('meta holders queue', 3, 'id keep fence', 3, 1)
local id, keep = word(1, 'id', 200), number(2, 'keep', 0, 2147483647)
local only = ARGV[3] and number(3, 'fence', 0, 4503599627370496) or 0
local fence, permits = holding(record)
if only > 0 and record and (fence or tonumber(call('ZSCORE', queue, id) or 0)) ~= only then
  record, fence, permits = false, nil, nil -- of a later call with the same id
end
local ends = now
if fence and now < next_end and not closed then
  ends = NEVER -- no lease at all has ended
elseif fence or closed or not agreed then
  ends = tonumber(call('ZSCORE', holders, id) or now)
end
if keep > 0 and (fence and ends > now and keep > permits or record and not fence) then
  refuse('keep: takes 0 to the permits that this id holds, ' .. (permits or 0))
end
if problem then return redis.error_reply(problem) end

local reply = {'gone'}
if not agreed then close() end
if closed then
  -- A holder that is still known may give back. How many permits it held is not known any more, nor its fence.
  if ends > now and keep == 0 and only == 0 then
    call('ZREM', holders, id)
    reply = {'released', 0}
  end
elseif fence and keep > 0 and ends > now then
  reply = {'released', keep}
  if keep < permits then
    set_ttl(holders) -- first, since this is allowed when memory is full, and everything is after it
    extra, in_use, changed = extra - permits + keep, in_use - permits + keep, true
    call('HSET', meta, id, holder_text(fence, keep), 'the state', state_text())
  end
elseif fence then
  free({id}, permits - 1)
  if agreed and ends > now then reply = {'released', 0} end
end
if record and not fence then
  leave_queue(id)
  call('HDEL', meta, id)
  local _, _, _, _, inbox = waiter(record)
  if inbox and inbox ~= '' then tell(inbox, id, 0, 0, -1) end
  reply = {'cancelled'}
end
settle()
expire_again()
if not closed then serve() end
save()
if reply[1] == 'released' then reply[3], reply[4] = used(), limit end
return reply
