-- Part: most calls of semaphore/acquire, fast: one permit at once or not at all, where nobody waits, no lease has ended, and
-- the bounds on all leases stay as they are. The rest of the script does the same, and everything else.
if limit > 0 and not record and not closed and now < next_end and #KEYS == 3 and #ARGV == 7 then
  local id, want, declared, lease_ms, wait_ms, inbox, ticket = unpack(ARGV)
  if want == '1' and wait_ms == '0' and inbox == '' and ticket == '0'
    and #id <= 200 and string.find(id, '^[!-~\128-\255]+$') and #lease_ms < 13 and string.find(lease_ms, '^%d+$')
    and string.find(declared, '^%d+$') and (#declared < 10 or declared + 0 == limit) -- whatever it is: a limit is stored
    and (expiry == 0 or now < expiry) then
    held, waiting, fields = call('ZCARD', holders), call('ZCARD', queue), call('HLEN', meta)
    local is_plain = waiting == 0 and fields == 1 + held
    local in_use, ends = held + extra, now + lease_ms
    if is_plain and in_use >= limit then
      local first = call('ZRANGE', holders, '0', '0', 'WITHSCORES')[2] -- text: a number takes twice as long as its command
      return {'denied', first and first ~= 'inf' and math.max(1, first - now) or -1, in_use, limit, 0, now}
    elseif is_plain and ends > now and ends >= next_end and ends <= last_end and (held > 0 or last_end - ends <= 1000)
      and micros > last_fence then
      call('ZADD', holders, ends, id)
      call('HSET', meta, 'the state', struct.pack(STATE, limit, extra, next_end, last_end, expiry, micros, pinned and 1 or 0, 0),
        id, struct.pack('<d', micros))
      if held == 0 and expiry ~= 0 then call('PEXPIREAT', holders, expiry) end -- an empty key was deleted
      return {'granted', 1, micros, ends, now, in_use + 1, limit}
    end
  end
end
