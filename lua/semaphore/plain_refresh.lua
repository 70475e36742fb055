-- Part: most calls of semaphore/refresh, fast: one permit, whose new lease ends later than the one before, and within the
-- bounds that are known. The rest of the script does the same, and everything else.
if limit > 0 and record and #record == 8 and ARGV[2] and not ARGV[3] and not KEYS[4] then
  local id, lease_ms = ARGV[1], ARGV[2]
  local ends = #lease_ms < 13 and string.find(lease_ms, '^%d+$') and now + lease_ms
  if ends and ends > now and ends <= last_end and (expiry == 0 or now < expiry) then
    local before = call('ZSCORE', holders, id)
    if before and now < before + 0 and ends >= before + 0 and redis.pcall('ZADD', holders, ends, id) == 0 then
      return {'refreshed', 1, struct.unpack('<d', record), ends, now}
    end -- it ends earlier, or memory is full
  end
end
