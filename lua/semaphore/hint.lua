-- Part: hint. Sends the first waiter the end of the next lease, if it plans to ask later, and stores its new plan.
-- In   first, first_text (the first waiter, if it stays first, and its record, if the keys are consistent), next_end, now, tell,
--      CHANNEL_AND_SECRET, WAITER, WAITER_SIZE, records
-- Out  records
if first_text and #first_text > WAITER_SIZE then
  local permits, lease, patience, asks_before, at_least = struct.unpack(WAITER, first_text)
  local when = math.max(next_end, now)
  if patience - asks_before > when then
    local channel, secret = string.match(first_text, CHANNEL_AND_SECRET, WAITER_SIZE + 1)
    records = records or {}
    local text = struct.pack(WAITER, permits, lease, patience, patience - when, at_least)
      .. string.sub(first_text, WAITER_SIZE + 1)
    records[#records + 1], records[#records + 2] = first, text
    tell(channel, secret, first, 0, 0, when == now and 0 or string.format('%d%09d', when / 1000000000, when % 1000000000))
  end
end
