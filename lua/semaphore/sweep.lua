-- Part: sweep. The line is full: removes the dead waiters among the first 100 before the caller's place.
local front = call('ZRANGE', queue, 0, math.min(waiting - behind, 100) - 1)
local gone, asked, channels, first_is_gone = {}, {}, {}, false
for i, text in ipairs(call('HMGET', meta, unpack(front))) do
  local lives = text and #text >= WAITER_SIZE and select(3, struct.unpack(WAITER, text)) > now
  local channel = lives and string.match(text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
  if not lives then gone[#gone + 1] = front[i] end
  if channel and channel ~= '' then asked[#asked + 1], channels[#channels + 1] = front[i], channel end
end
local counts = #asked > 0 and redis.pcall('PUBSUB', 'NUMSUB', unpack(channels)) or {}
for i, who in ipairs(asked) do
  if counts[2 * i] == 0 then gone[#gone + 1] = who end
end
if #gone > 0 then
  call('ZREM', queue, unpack(gone))
  call('HDEL', meta, unpack(gone))
  waiting, wrote, changed = waiting - #gone, true, true
  for _, who in ipairs(gone) do first_is_gone = first_is_gone or who == front[1] end
  if first_is_gone then
    head_until = 0 -- the next call finds the first waiter
    local last = records and #records or 0 -- a record that `hint` changed must not be written again
    if last > 0 and records[last - 1] == front[1] then records[last - 1], records[last] = nil, nil end
  end
end
