-- Part: serve. Grants to the waiters in their order, and after them to the caller, while enough is free. A dead waiter leaves
-- the queue without a message. A waiter that wants more than the limit leaves it with a hint. At most 100 waiters in one call.
-- In   serves (whether to read the line), line (the first two waiters, if read), asks (the caller wants permits), id, want (how
--      many; nil: all that are free), lease_ms, at_least_ms, behind (it comes before so many waiters), waits (it waits in line
--      until patience_until), patience_until, waiting, limit, held, extra_weight, in_use, next_end, last_end, latest, last_fence,
--      next_fence, now, call, meta, holders, queue, listens, tell, CHANNEL_AND_SECRET, PLAIN_HOLDER, HOLDER, WAITER, WAITER_SIZE,
--      NEVER, records
-- Out  given (the caller's fence), weight (its permits), asks (false: the caller was served), stopped (the bound of 100 was
--      reached), head_until, waiting, held, extra_weight, in_use, next_end, last_end, latest, last_fence, next_fence,
--      is_permanent, is_new_holders, records, changed, wrote
local given, stopped, first, first_text, texts
local seen, at = 0, 0
while serves and (asks and waiting == behind or waiting > 0 and seen < 100) do
  local in_line = waiting > (asks and behind or 0)
  if in_line and not texts then
    local last = seen == 0 and 1 or 99 - seen -- usually one is served, and the next becomes first
    line = line or call('ZRANGE', queue, '0', seen == 0 and '1' or last)
    if #line <= last then waiting = #line end
    if waiting > 0 then texts = call('HMGET', meta, unpack(line)) end
    at, in_line = 0, waiting > 0
  end
  local who, text = id
  if in_line then
    seen, at = seen + 1, at + 1
    who, text = line[at], texts[at]
  end
  local permits, lease, patience, asks_before, at_least, channel, secret
  local mine, alive = asks and who == id, true
  if mine then
    permits = want or math.max(1, limit - in_use)
    lease = lease_ms
    patience = patience_until
    at_least = at_least_ms
  elseif text and #text >= WAITER_SIZE then
    permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, text)
    alive = patience > now
    -- Only a waiter that could be granted, or that blocks others, must have a subscriber.
    if alive and (in_use < limit or permits > limit) then
      channel, secret = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      alive = in_use >= limit or listens(channel)
    end
  else
    alive = false
  end
  local fits = alive and in_use + permits <= limit
  if alive and permits <= limit and (not fits and (waits or not mine) or channel == '') then
    head_until = patience -- stays first; without an inbox its permits are reserved for it
    if not mine and patience - asks_before > next_end then first, first_text = who, text end
    break
  end
  if in_line then -- first, since ZREM is allowed when memory is full, and any write after it
    call('ZREM', queue, who)
    waiting, wrote, changed = waiting - 1, true, true
  end
  local ends, score
  if fits then
    -- The same text as by %.0f, in half the time. Each part fits an integer of a 32-bit server.
    ends = lease == 0 and NEVER or now + lease
    score = lease == 0 and '+inf' or string.format('%d%09d', ends / 1000000000, ends % 1000000000)
    last_fence = next_fence
    next_fence = next_fence + 1
    if not mine then -- the script is atomic: no client sees the message before the permit
      local fence_text = string.format('%d%09d', last_fence / 1000000000, last_fence % 1000000000)
      fits = tell(channel, secret, who, permits, fence_text, lease == 0 and -1 or score)
    end
  elseif alive and not mine then
    tell(channel, secret, who, 0, 0, 0)
  end
  if fits then
    -- include: semaphore/grant.lua
    if mine then given, weight = last_fence, permits end
  elseif in_line then
    call('HDEL', meta, who)
  end
  if mine then asks = false end
  if in_line and at == #line then line, texts = nil, nil end
end
-- include: semaphore/hint.lua
if seen == 100 then -- the next live waiter receives a hint to ask at once; its call serves the rest
  waiting, head_until = call('ZCARD', queue), 0
  stopped = waiting > 0
  for from = 0, math.min(waiting, 1000) - 1, 100 do
    line = call('ZRANGE', queue, from, from + 99)
    local ids, channels, secrets = {}, {}, {}
    for i, text in ipairs(call('HMGET', meta, unpack(line))) do
      if text and #text > WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now then
        ids[#ids + 1] = line[i]
        channels[#ids], secrets[#ids] = string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
      end
    end
    local nth = #ids > 0 and listens(unpack(channels))
    if nth then tell(channels[nth], secrets[nth], ids[nth], 0, 0, 0) break end
  end
end
