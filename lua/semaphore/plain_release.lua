-- Part: most calls of semaphore/release, fast: one permit is given back, nobody waits, and no lease has ended. The rest of the
-- script does the same, and everything else; only that keys disagree is left to the next call to notice, since what is taken
-- from two keys alike leaves them as unlike as before.
if limit > 0 and record and #record == 8 and ARGV[2] == '0' and not ARGV[3] and not KEYS[4]
  and gate ~= 1 and now < next_end and (now < expiry or pinned == 1) then
  waiting = gate == 2 and 0 or call('ZCARD', queue)
  if waiting == 0 and call('ZREM', holders, ARGV[1]) == 1 then
    call('HDEL', meta, ARGV[1])
    return {'released', 0, call('ZCARD', holders) + extra, limit}
  end
end
