-- Part: the queue. Serves its head, then the next, while what is free is enough for it.
local head_until      -- patience of the waiter that stays at the head, where one was seen
local stopped = false -- the bound was reached: there is more to do, and somebody must ask again at once

local function leave_queue(who)
  call('ZREM', queue, who)
  wrote = true
  waiting = waiting - 1
end

-- Whether somebody listens to the inbox of each of these waiters; to no inbox, nobody has to. Only exact subscribers of
-- this very node count: the number that PUBLISH returns has others in it, and not all of them.
local function listening(texts)
  local channels = {}
  for i, text in ipairs(texts) do channels[i] = channel_of(select(5, waiter(text)) or '') end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
  local heard = {}
  for i, channel in ipairs(channels) do heard[i] = channel == '' or (counts[2 * i] or 0) > 0 end
  return heard
end

-- Tells the next waiter that lives to ask at once: a script that stopped at its bound leaves the rest to it.
local function call_next()
  for first = 0, 900, 100 do
    local ids, texts = look(first, first + 99)
    if #ids == 0 then return end
    local heard = listening(texts)
    for i, who in ipairs(ids) do
      local _, _, patience, _, inbox = waiter(texts[i])
      if patience and patience > now and heard[i] and inbox ~= '' then return tell(inbox, who, 0, 0, 0) end
    end
  end
end

-- Grants what is free to the head of the queue, then to the next. Whoever is gone leaves the queue unpublished, whoever
-- wants more than the limit leaves it with a hint. At most 100 at a time.
-- `me` is the id that is calling, which needs no message: returns true when its turn has come and enough is free.
local function serve(me, my_permits)
  local seen = 0
  while waiting > 0 and seen < 100 do
    local ids, texts = look('0', seen == 0 and '1' or 99 - seen) -- most often one is served, and one comes to the head
    if #ids == 0 then return false end -- cannot be, and must not go on for ever
    local heard
    for i, who in ipairs(ids) do
      seen = seen + 1
      if who == me then return in_use + my_permits <= limit end
      local permits, lease_ms, patience, _, inbox = waiter(texts[i])
      local alive = patience and patience > now
      if alive and in_use < limit then -- only who could be granted, or keeps others from it, has to listen
        heard = heard or listening(texts)
        alive = heard[i]
      end
      if alive and permits <= limit then
        if inbox == '' or in_use + permits > limit then -- stays at the head; without an inbox its permits are kept for it
          head_until = patience
          rouse(who, texts[i], math.max(next_end, now))
          return false
        end
        leave_queue(who) -- first, since this is allowed when memory is full, and everything is after it
        local fence = next_number() -- the script is atomic: nobody sees the message before the permit
        if tell(inbox, who, permits, fence, lease_ms == 0 and -1 or now + lease_ms) then
          grant(who, permits, lease_ms)
        else
          call('HDEL', meta, who)
        end
      else
        leave_queue(who)
        call('HDEL', meta, who)
        if alive then tell(inbox, who, 0, 0, 0) end
      end
    end
  end
  if waiting > 0 then
    stopped = true
    call_next()
  end
  return false
end
