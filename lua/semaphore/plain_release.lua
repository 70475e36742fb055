-- Part: most calls of semaphore/release, fast: one permit is given back, nobody waits, and no lease has ended. The rest of the
-- script does the same, and everything else.
if stored[1] and record and #KEYS == 3 and #ARGV == 2 and ARGV[2] == '0' and string.find(record, '^%d+$') then
  waiting = call('ZCARD', queue)
  local limit, extra, next_end, expiry, pinned = string.match(stored[1], '^(%d+) (%d+) (%d+) %d+ (%d+) ([01]) 0$')
  if limit and waiting == 0 and now < next_end + 0 and (now < expiry + 0 or pinned == '1')
    and call('ZREM', holders, ARGV[1]) == 1 then
    call('HDEL', meta, ARGV[1])
    return {'released', 0, call('ZCARD', holders) + extra, limit + 0}
  end
end
