-- Part: stay. The caller joins the line, or stays in it. Computes its position, when to ask again, and its record.
-- In   joins (it is not in line yet), id, want, lease_ms, wait_ms, inbox, at_least_ms, ticket, behind, patience_until, record,
--      waiting, stopped, suspended, next_end, expiry, next_fence, now, call, find, holders, queue, WAITER, WAITER_SIZE, NEVER,
--      records
-- Out  ticket, position (from 1), retry_after (in ms), waiting, head_until, expiry, last_fence, is_new_queue, records,
--      ttl_changed, wrote
if joins then
  if ticket == 0 then ticket = next_fence end
  last_fence, next_fence = next_fence, next_fence + 1
  call('ZADD', queue, ticket, id)
  is_new_queue = waiting == 0
  if waiting == behind then head_until = patience_until end -- it is the first
  waiting = waiting + 1
end
local ahead = joins and waiting - behind - 1 or call('ZRANK', queue, id)
local position, retry_after = ahead + 1, math.max(1, (wait_ms - wait_ms % 3) / 3)
-- The waiters ahead may all be dead, and they receive the messages. So it asks every second for each of them.
if ahead > 0 then retry_after = math.min(retry_after, 1000 * ahead) end
if stopped then
  retry_after = 1
elseif suspended or next_end < now + retry_after then -- while suspended it waits for the last lease
  local lease = call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')
  if lease[2] and lease[2] ~= 'inf' then
    local ask_in = math.max(1, lease[2] - now)
    if ahead > 0 and not suspended then
      -- It asks a little after the first waiter would. It does so only once within two thirds of its lease, before which no
      -- renewed lease ends, and not for permits that are in use until their minimum hold ends. Else many would ask at the end of
      -- each of many leases.
      ask_in = ask_in + math.min(3 * ahead, 60 + math.floor(ahead / 50))
      local asked = record and #record >= WAITER_SIZE and select(3, struct.unpack(WAITER, record)) - wait_ms or 0
      local least = math.min(retry_after, lease_ms == 0 and NEVER or lease_ms * 2 / 3)
      if now + ask_in - asked < least or find(lease[1], ' ') then ask_in = retry_after end
    end
    retry_after = math.min(retry_after, ask_in)
  end
end
if expiry ~= 0 and patience_until > expiry then expiry, ttl_changed = patience_until + 60000, true end
wrote = true -- the record of a waiter may be refused when memory is full
local text = struct.pack(WAITER, want, lease_ms, patience_until, wait_ms - retry_after, at_least_ms) .. inbox
if records then records[#records + 1], records[#records + 2] = id, text else records = {id, text} end
