-- Part: most releases that somebody waits for, fast: all permits are in use by one holder each, and one of them goes to the
-- head of the line. The rest of the script does the same, and everything else.
if waiting and waiting > 0 and extra == 0 then -- and so is what plain_release asks before it counts who waits
  held, fields = call('ZCARD', holders), call('HLEN', meta)
  local ids = call('ZRANGE', queue, '0', '1')
  local texts = held == limit and fields == 1 + held + waiting and ids[1] and call('HMGET', meta, unpack(ids))
  local text, behind = texts and texts[1], texts and texts[2]
  local permits, lease_ms, patience, channel, secret
  if text and #text > 32 then
    permits, lease_ms, patience = struct.unpack('<ddd', text)
    channel, secret = string.match(text, '^([^#]+)#(.+)$', 33)
  end
  local ends = secret and permits == 1 and patience > now and lease_ms > 0 and now + lease_ms
  -- Whoever comes to the head stays there, and does not plan to sleep beyond the next end of a lease.
  local stays = waiting == 1
  if ends and behind and #behind >= 32 then
    local wants, _, until_then, ask_at = struct.unpack('<dddd', behind)
    stays = wants <= limit and until_then > now and (ask_at <= next_end or #behind == 32)
  end
  if ends and stays and ends >= next_end and ends <= last_end and (held > 1 or last_end - ends <= 1000)
    and call('ZSCORE', holders, ARGV[1]) and (redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0) > 0 then
    local who, fence = ids[1], math.max(last_fence + 1, micros)
    local message = string.format('%s 1 %d%09d %d%09d %d%09d', who, fence / 1000000000, fence % 1000000000,
      ends / 1000000000, ends % 1000000000, now / 1000000000, now % 1000000000)
    call('ZREM', queue, who) -- first, since this is allowed when memory is full, and everything is after it
    if type(redis.pcall('PUBLISH', channel, message .. ' ' .. redis.sha1hex(secret .. message))) == 'number' then
      call('ZADD', holders, ends, who)
      call('ZREM', holders, ARGV[1])
      call('HDEL', meta, ARGV[1])
      call('HSET', meta, 'the state', struct.pack(STATE, limit, 0, next_end, last_end, expiry, fence, pinned,
        waiting > 1 and 0 or 2), who, struct.pack('<d', fence))
      return {'released', 0, held, limit}
    end
    call('HDEL', meta, who) -- the server does not allow it to be told
    waiting, fields = waiting - 1, fields - 1
  end
end
