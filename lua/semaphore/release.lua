-- semaphore/release: gives permits back, or a place in the queue. Running it again changes nothing more.
--
-- KEYS  meta holders queue
-- ARGV  id
--       keep   how many permits to keep; 0: gives everything back
-- REPLY released  left in_use limit
--       cancelled
--       gone        the lease had ended, or it was released before
takes('meta holders queue', 3, 'id keep', 2)
local id, keep = word(1, 'id', 200), number(2, 'keep', 0, 2147483647)
local fence, permits = holding(record)
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
  -- Who is still known to hold may give back; how much each held is not known any more.
  if ends > now and keep == 0 then
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
  reply = {'cancelled'}
end
settle()
expire_again()
if not closed then serve() end
save()
if reply[1] == 'released' then reply[3], reply[4] = used(), limit end
return reply
