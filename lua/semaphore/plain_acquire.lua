-- Part: most calls of semaphore/acquire, fast: one permit of a semaphore in which no lease has ended, for an id that is new.
-- It is granted where nobody waits; denied, or put in line, where nothing is free and whoever is at the head stays there. The
-- rest of the script does the same, and everything else.
if limit > 0 and not record and gate ~= 1 and now < next_end and not KEYS[4] then
  local id, want, declared, lease_ms, wait_ms, inbox, ticket, more = unpack(ARGV, 1, 8)
  local find, waits = string.find, wait_ms ~= '0'
  if want == '1' and ticket == '0' and not more
    and #id <= 200 and find(id, '^[!-~\128-\255]+$') and #lease_ms < 13 and find(lease_ms, '^%d+$')
    and find(declared, '^%d+$') and (#declared < 10 or declared + 0 == limit) -- whatever it is: a limit is stored
    and (not waits and inbox == '' or #wait_ms < 8 and find(wait_ms, '^[1-9]%d*$')
      and #inbox <= 300 and find(inbox, '^[!-"$-~\128-\255]+#[!-~\128-\255]+$'))
    and (expiry == 0 or now < expiry) then
    held, fields = call('ZCARD', holders), call('HLEN', meta)
    waiting = gate == 2 and 0 or call('ZCARD', queue)
    local in_use = held + extra
    local agreed = fields == 1 + held + waiting
    local is_full = agreed and in_use >= limit
    if is_full and waiting > 0 then
      local text = call('HGET', meta, call('ZRANGE', queue, '0', '0')[1])
      is_full = text and #text >= 32
      if is_full then
        local wants, _, until_then, ask_at = struct.unpack('<dddd', text)
        is_full = wants <= limit and until_then > now and (ask_at <= next_end or #text == 32)
      end
    end
    local new = last_fence < micros and micros or last_fence + 1 -- its fence, or its ticket
    local text, reply -- the id's record, and what is answered with it
    if is_full and not waits then
      if waiting == 0 then
        local first = call('ZRANGE', holders, '0', '0', 'WITHSCORES')[2] -- text: a number takes as long as its command
        return {'denied', first == 'inf' and -1 or first - now, in_use, limit, 0, now}
      end
    elseif is_full and (expiry == 0 or now + wait_ms <= expiry) then
      call('ZADD', queue, new, id)
      if waiting == 0 and expiry ~= 0 then call('PEXPIREAT', queue, expiry) end
      local nth = call('ZRANGE', holders, waiting, waiting, 'WITHSCORES')[2] -- the end that it waits for, as far as is known
      local third = math.max(1, math.floor(wait_ms / 3))
      local retry_after = nth and nth ~= 'inf' and math.min(nth - now, third) or third
      text = struct.pack('<dddd', 1, lease_ms, now + wait_ms, now + retry_after) .. inbox
      reply, gate = {'queued', new, waiting + 1, retry_after, in_use, limit, now}, 0
    elseif agreed and in_use < limit and waiting == 0 then
      local ends = now + lease_ms
      if ends >= next_end and ends <= last_end and (held > 0 or last_end - ends <= 1000) then
        call('ZADD', holders, ends, id)
        if held == 0 and expiry ~= 0 then call('PEXPIREAT', holders, expiry) end -- an empty key was deleted
        text, reply, gate = struct.pack('<d', new), {'granted', 1, new, ends, now, in_use + 1, limit}, 2
      end
    end
    if text then
      local packed = struct.pack(STATE, limit, extra, next_end, last_end, expiry, new, pinned, gate)
      call('HSET', meta, 'the state', packed, id, text)
      return reply
    end
  end
end
