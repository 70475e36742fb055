-- Part: messages to the waiters.
-- Out  listens, tell, CHANNEL_AND_SECRET, where somebody waits
local listens, tell, CHANNEL_AND_SECRET
if waiting > 0 then
  CHANNEL_AND_SECRET = '^([^#]*)#?(.*)$' -- of an inbox
  -- The place of the first of these channels that somebody listens to. A waiter without a channel need not listen. Only exact
  -- subscribers of this very node count: the number that PUBLISH returns includes others, and not all of them.
  function listens(...)
    local counts = (...) == '' and {'', 1} or redis.pcall('PUBSUB', 'NUMSUB', ...)
    for i = 2, #counts, 2 do if counts[i] > 0 then return i / 2 end end
  end
  -- A message: a grant with fence and end as text, or with a fence of 0 a hint to ask again at `at`. Anybody may publish, so a
  -- message to a waiter that gave a secret ends with a signature. False when it could not be sent.
  function tell(channel, secret, who, permits, fence_text, at)
    local message = who .. (permits == 1 and ' 1 ' or ' ' .. permits .. ' ') .. fence_text .. ' ' .. at .. ' '
      .. clock[1] .. string.sub('00000' .. clock[2], -6, -4)
    if secret ~= '' then message = message .. ' ' .. redis.sha1hex(secret .. message) end
    return type(redis.pcall('PUBLISH', channel, message)) == 'number'
  end
end
