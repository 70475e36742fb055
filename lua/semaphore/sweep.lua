-- Part: sweep. The line is full: of the first 100 waiters, those that are gone leave it.
local gone, front = {}, call('ZRANGE', queue, 0, 99)
for i, text in ipairs(call('HMGET', meta, unpack(front))) do
  local lives = text and #text >= WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now
    and listens((string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)))
  if not lives then gone[#gone + 1] = front[i] end
end
if #gone > 0 then
  call('ZREM', queue, unpack(gone))
  call('HDEL', meta, unpack(gone))
  waiting, wrote, changed = waiting - #gone, true, true
  if gone[1] == front[1] then
    head_until = 0 -- the next call looks who is first
    local last = records and #records or 0 -- the first waiter may have been hinted, and is not to be written again
    if last > 0 and records[last - 1] == front[1] then records[last - 1], records[last] = nil, nil end
  end
end
