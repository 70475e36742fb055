-- Part: expire. Takes back leases that have ended. Suspends granting if the keys are inconsistent, and resumes it.
-- In   the results of `load` and `count`; `fence`: the caller's own lease has ended
if not consistent or suspended or fence or now >= next_end then
  if consistent and not suspended then -- the caller's own lease, and up to 100 others, the earliest first
    local ended = fence and {id} or {}
    for _, who in ipairs(held > 0 and call('ZRANGEBYSCORE', holders, '-inf', now, 'LIMIT', 0, 100) or {}) do
      if not fence or who ~= id then ended[#ended + 1] = who end
    end
    if #ended > 0 then
      for _, text in ipairs(extra_weight > 0 and call('HMGET', meta, unpack(ended)) or {}) do
        if text and #text == HOLDER_SIZE then extra_weight = extra_weight - select(2, struct.unpack(HOLDER, text)) + 1 end
      end
      local gone = call('ZREM', holders, unpack(ended))
      consistent = call('HDEL', meta, unpack(ended)) == #ended and gone == #ended
      held, lease_ended = held - gone, true
    end
    if fence then record, fence = false, nil end
    next_end, changed = tonumber(held > 0 and call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] or NEVER), true
  end
  -- The keys are inconsistent: the holders are unknown, only the end of the last lease is known. It is the later of the last
  -- end in holders and `last_end`. Granting resumes when `last_end` has passed and all known leases have ended or were released.
  if not consistent then
    local known = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2] or 0)
    call('UNLINK', meta, queue)
    if is_known and last_end > now then
      call('ZADD', holders, last_end, 'lost leases') -- it contains a space, so no id is equal to it
      known = math.max(known, last_end)
    end
    suspended, waiting, extra_weight, record, fence = true, 0, 0, false, nil
    next_end, last_end = NEVER, known == NEVER and last_end or known
    expiry = (pinned or known == NEVER) and 0 or math.max(known, now) + 60000
    held, changed, ttl_changed, wrote = call('ZCARD', holders), true, true, true
  end
  if suspended and call('ZCOUNT', holders, '(' .. now, '+inf') == 0 then
    call('UNLINK', holders)
    suspended, held, extra_weight, next_end, changed, lease_ended = false, 0, 0, NEVER, true, true
  end
  in_use = suspended and 2147483647 or held + extra_weight
end
