-- Part: what goes with every change of a lease: the bounds on all leases, the TTL, the text of the state.
local changed = false -- 'the state' is to be written
local grown = false   -- the keys' TTL is to be set
local wrote = false   -- this script has written, so nothing is refused any more when memory is full

-- Keys that end with this very ms live on: an end that is not ahead would delete what the script writes.
if state and expiry ~= 0 and expiry <= now then expiry, changed, grown = now + 60000, true, true end

local function state_text()
  changed = false
  return struct.pack(STATE, limit, extra, next_end, last_end, expiry, last_fence, pinned and 1 or 0,
    closed and 1 or waiting == 0 and 2 or 0)
end

local function set_ttl(key)
  wrote = true
  if expiry == 0 then call('PERSIST', key) else call('PEXPIREAT', key, expiry) end
end

-- Keeps the bounds and the TTL ahead of a lease that ends at `ends`. Up to a second in advance, so that few grants and
-- refreshes change them: what looks lost later may keep the gate closed for that much longer, never shorter.
local function cover(ends)
  if ends < next_end then next_end, changed = ends, true end
  if ends == NEVER then
    if expiry ~= 0 then expiry, changed, grown = 0, true, true end
  elseif ends > last_end then
    last_end, changed = ends + math.min(1000, math.floor((ends - now) / 8)), true
    if expiry ~= 0 and expiry < ends + 60000 then expiry, grown = ends + 60000, true end
  end
end

-- A permanent lease keeps the state for ever. Once none is left (`but`: the one that is about to end) and the limit is
-- not pinned, the TTL comes back.
local function expire_again(but)
  if expiry ~= 0 or pinned then return end
  local last = call('ZREVRANGE', holders, 0, 1, 'WITHSCORES')
  local ends = last[last[1] == but and 4 or 2]
  if ends ~= 'inf' then
    -- Whoever waits asks every few seconds, which makes the keys live for as long as it waits.
    expiry, changed, grown = math.max(last_end - 1000, tonumber(ends or 0), now) + 60000, true, true
  end
end
