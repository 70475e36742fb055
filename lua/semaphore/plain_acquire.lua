-- Part: most calls of semaphore/acquire, fast: one permit at once or not at all, where nobody waits, no lease has ended, and
-- the state stays as it is. The rest of the script does the same, and everything else.
if stored[1] and stored[2] and not record and #KEYS == 3 and #ARGV == 7 then
  local id, want, declared, lease_ms, wait_ms, inbox, ticket = unpack(ARGV)
  local limit, extra, next_end, last_end, expiry = string.match(stored[1], '^([1-9]%d*) (%d+) (%d+) (%d+) (%d+) [01] 0$')
  if limit and want == '1' and wait_ms == '0' and inbox == '' and ticket == '0'
    and #id <= 200 and string.find(id, '^[!-~\128-\255]+$') and #lease_ms < 13 and string.find(lease_ms, '^%d+$')
    and (declared == limit or #declared < 10 and string.find(declared, '^%d+$')) -- whatever it is: a limit is stored
    and now < next_end + 0 and (expiry == '0' or now < expiry + 0) then
    held, waiting, fields = call('ZCARD', holders), call('ZCARD', queue), call('HLEN', meta)
    local is_plain = waiting == 0 and fields == 2 + held
    local in_use, ends = held + extra, now + lease_ms
    limit = limit + 0
    if is_plain and in_use >= limit then
      local first = call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
      return {'denied', first and first ~= 'inf' and math.max(1, first - now) or -1, in_use, limit, 0, now}
    elseif is_plain and ends > now and ends >= next_end + 0 and ends <= last_end + 0 and (held > 0 or last_end - ends <= 1000)
      and micros > stored[2] + 0 then
      local fence = #clock[2] == 6 and clock[1] .. clock[2] or string.format('%.0f', micros)
      call('ZADD', holders, ends, id)
      call('HSET', meta, 'last fence', fence, id, fence)
      if held == 0 and expiry ~= '0' then call('PEXPIREAT', holders, expiry) end -- an empty key was deleted
      return {'granted', 1, micros, ends, now, in_use + 1, limit}
    end
  end
end
