-- Part: messages to the waiters.
-- Out  listens, tell, CHANNEL_AND_SECRET, if any id waits
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  -- Returns the position of the first of these channels with a subscriber. A waiter without a channel needs none. Only exact
  -- subscriptions at this node count: the number that PUBLISH returns includes some of the others.
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  -- Sends a grant with fence and end as text, or with a fence of 0 a hint to ask again at `at`. Other clients may publish, so a
  -- message to a waiter with a secret ends with a signature. Returns false if the message could not be sent.
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
