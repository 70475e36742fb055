-- Part: load. Reads the state, and the record of the caller's id. Writes nothing.
-- In   id (may be empty), problem (an error found before: then nothing is read), call, now, micros
-- Out  problem (the script returns it), VERSION, STATE, PLAIN_HOLDER, PLAIN_HOLDER_SIZE, HOLDER, HOLDER_SIZE, WAITER,
--      WAITER_SIZE, NEVER, meta, holders, queue (the keys), state (its text), is_known (it is readable), suspended, pinned,
--      limit, extra_weight, next_end, last_end, expiry, last_fence, head_until, next_fence, record (of the caller), fence,
--      weight, least_end (of a holder: its fence, its permits, the end of its minimum hold), changed, ttl_changed, wrote,
--      records, renewed, lease_ended, is_permanent, is_new_holders, is_new_queue, latest (see below)
-- include: semaphore/layout.lua
local NEVER = 1 / 0
local meta, holders, queue = KEYS[1], KEYS[2], KEYS[3]
if #KEYS ~= 3 then
  problem = problem or 'LUAGATE keys: wrong number of keys. Accepted: 3: meta holders queue'
elseif meta == holders or meta == queue or holders == queue then
  problem = problem or 'LUAGATE keys: one key twice. Accepted: 3 different keys: meta holders queue'
end
local stored = problem and {} or call('HMGET', meta, 'the state', id)
local state, record = stored[1], stored[2]
local is_known = state and #state == STATE_SIZE
local mode, limit, extra_weight, next_end, last_end, expiry, last_fence, head_until =
  struct.unpack(STATE, is_known and state or string.rep('\0', STATE_SIZE))
if not is_known then mode, next_end, expiry = state and string.byte(state) or VERSION * 4, NEVER, now end
local suspended, pinned
if mode ~= VERSION * 4 then
  suspended, pinned = mode % 2 == 1, mode % 4 > 1
  local version = math.floor(mode / 4)
  if version ~= VERSION then
    problem = 'LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore'
  end
end
local fence, weight, least_end
if record and #record == PLAIN_HOLDER_SIZE then fence, weight, least_end = struct.unpack(PLAIN_HOLDER, record), 1, 0 end
if record and #record == HOLDER_SIZE then fence, weight, least_end = struct.unpack(HOLDER, record) end
-- The next fence or ticket. It is at least the clock, so it grows even if the last one was lost.
local next_fence = last_fence < micros and micros or last_fence + 1
-- The changes that `write` stores.
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- `write` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
