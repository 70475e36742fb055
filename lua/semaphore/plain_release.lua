-- Part: most calls of semaphore/release, fast: one permit is given back, nobody waits, and no lease has ended. The rest of the
-- script does the same, and everything else.
if state and readable and record and #record == 8 and #KEYS == 3 and #ARGV == 2 and ARGV[2] == '0'
  and not closed and now < next_end and (now < expiry or pinned) then
  waiting = call('ZCARD', queue)
  if waiting == 0 and call('ZREM', holders, ARGV[1]) == 1 then
    call('HDEL', meta, ARGV[1])
    return {'released', 0, call('ZCARD', holders) + extra, limit}
  end
end
