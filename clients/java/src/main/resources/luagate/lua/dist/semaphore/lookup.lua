-- semaphore/lookup: returns the permit or the place in line of an id. Writes nothing.
--
-- KEYS  meta holders queue
-- ARGV  id
-- REPLY held    permits fence expires_at now
--       queued  ticket position now
--       gone    now
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\128-\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
takes('meta holders queue', 3, 'id', 1)
local id = word(1, 'id', 200)
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local VERSION = 1
local STATE, STATE_SIZE = '<BIdddddd', 53
local PLAIN_HOLDER, PLAIN_HOLDER_SIZE = '<d', 8 -- of one permit, without a minimum hold
local HOLDER, HOLDER_SIZE = '<dId', 20
local WAITER, WAITER_SIZE = '<IddId', 32
local NEVER = 1 / 0
local MANY = 1 / 0 -- waiters that were not counted: more than one
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
local line_is_empty = head_until == NEVER
local next_fence = last_fence < micros and micros or last_fence + 1
local changed, ttl_changed              -- the state; when the keys expire
local wrote                             -- `write` need not begin with a write that is allowed when memory is full
local records = nil                     -- ids and their new records, alternating
local renewed                           -- the new end of the caller's lease
local lease_ended, is_permanent         -- a lease ended; a new lease is permanent
local is_new_holders, is_new_queue      -- the key was empty, so it has no TTL yet
local latest = 0                        -- the latest end of a new lease
if problem then return redis.error_reply(problem) end
local ends, rank = call('ZSCORE', holders, id), call('ZRANK', queue, id)
if fence and ends and tonumber(ends) > now then
  return {'held', weight, fence, ends == 'inf' and -1 or tonumber(ends), now}
end
if rank and record and #record >= WAITER_SIZE and select(3, struct.unpack(WAITER, record)) > now then
  return {'queued', tonumber(call('ZSCORE', queue, id)), rank + 1, now}
end
return {'gone', now}
