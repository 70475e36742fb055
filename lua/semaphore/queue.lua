-- Part: who waits, who still listens, and what they are told.
local function waiter(text)
  local permits, lease, patience, ask_at, inbox = string.match(text or '', '^w (%d+) (%d+) (%d+) (%d+) (%S*)$')
  return tonumber(permits), tonumber(lease), tonumber(patience), tonumber(ask_at), inbox
end

local function waiter_text(permits, lease_ms, patience, ask_at, inbox)
  return 'w ' .. permits .. ' ' .. lease_ms .. ' ' .. patience .. ' ' .. ask_at .. ' ' .. inbox
end

-- A message: a grant, or with `fence` 0 a hint to ask again at `at`. False when it could not be sent.
local function tell(inbox, who, permits, fence, at)
  local sent = redis.pcall('PUBLISH', inbox, who .. ' ' .. permits .. ' ' .. fence .. ' ' .. at .. ' ' .. now)
  return type(sent) == 'number'
end

-- The records of the waiters at these places, and who listens: 2 * i of `heard` is how many listen to the i-th's inbox.
-- Only exact subscribers of this very node count: a number that PUBLISH returns has others in it, and not all of them.
local function look(first, last)
  local ids = redis.call('ZRANGE', queue, first, last)
  if #ids == 0 then return ids end
  local texts = redis.call('HMGET', meta, unpack(ids))
  local inboxes = {}
  for i, text in ipairs(texts) do inboxes[i] = select(5, waiter(text)) or '' end
  local heard = redis.pcall('PUBSUB', 'NUMSUB', unpack(inboxes))
  return ids, texts, heard.err and {} or heard
end

-- Tells the head to ask at `at` (`now`: at once) if it plans to sleep longer, and remembers that it was told.
local function rouse(who, text, at)
  local permits, lease_ms, patience, ask_at, inbox = waiter(text)
  if inbox and inbox ~= '' and ask_at > at then
    redis.call('HSET', meta, who, waiter_text(permits, lease_ms, patience, at, inbox))
    tell(inbox, who, 0, 0, at == now and 0 or at)
  end
end
