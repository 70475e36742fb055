-- Part: write. Writes the changed state and records, and when the keys expire. No other part writes these.
-- In   changed, ttl_changed, wrote, records, renewed, lease_ended, is_permanent, is_new_holders, is_new_queue, latest,
--      state, pinned, suspended, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until, waiting, held, id, now,
--      call, meta, holders, queue, STATE, VERSION, NEVER
if is_permanent then
  if expiry ~= 0 then expiry, changed, ttl_changed = 0, true, true end
elseif lease_ended and expiry == 0 and not pinned then
  -- A permanent lease kept the keys for ever. Without any, and without a pinned limit, they expire again. A waiter asks every
  -- few seconds, which keeps them while it waits.
  local last = call('ZREVRANGE', holders, '0', '1', 'WITHSCORES')
  last = last[renewed and last[1] == id and 4 or 2]
  if last ~= 'inf' then
    expiry, changed, ttl_changed = math.max(last_end - 1000, tonumber(last or 0), now) + 60000, true, true
  end
elseif state and expiry ~= 0 and expiry <= now then -- keys that expire in this ms would take the new entries with them
  expiry, changed, ttl_changed = now + 60000, true, true
end
-- The bound is up to a second later than needed, so that few calls change it. After a loss, granting may be suspended for that
-- much longer, never shorter.
if latest > last_end then
  last_end, changed = latest + math.min(1000, math.floor((latest - now) / 8)), true
  if expiry ~= 0 and expiry < latest + 60000 then expiry, ttl_changed = latest + 60000, true end
end
-- When memory is full, the server may refuse only a new permit or a place in line, at the first write. All other calls begin
-- with a write that is allowed then. After it every write is allowed.
local is_first = not wrote and (changed or records or renewed)
if is_first then
  if expiry == 0 then call('PERSIST', meta) else call('PEXPIREAT', meta, expiry) end
end
if renewed then call('ZADD', holders, renewed, id) end
if changed or records then
  local text = struct.pack(STATE, VERSION * 4 + (pinned and 2 or 0) + (suspended and 1 or 0), limit, extra_weight, next_end,
    last_end, expiry, last_fence, waiting == 0 and NEVER or head_until)
  if records then call('HSET', meta, 'the state', text, unpack(records)) else call('HSET', meta, 'the state', text) end
end
if ttl_changed then
  local keys = {}
  if held > 0 then keys[1] = holders end
  if waiting > 0 then keys[#keys + 1] = queue end
  if not (is_first and state) then keys[#keys + 1] = meta end
  for _, key in ipairs(keys) do
    if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
  end
elseif expiry ~= 0 then
  if is_new_holders then call('PEXPIREAT', holders, expiry) end
  if is_new_queue then call('PEXPIREAT', queue, expiry) end
end
