-- semaphore/lookup: returns the permit or the place in line of an id. Writes nothing.
--
-- KEYS  meta holders queue
-- ARGV  id
-- REPLY held    permits fence expires_at now
--       queued  ticket position now
--       gone    now
-- Part: argument checks, for scripts that need not be fast.
-- Out  problem (the first error found; the script returns it), refuse, number, word, takes
-- Part: the patterns of arguments, and the texts of their errors. A number consists of decimal digits only: tonumber alone
-- also accepts '0x3', '1e0' and ' 2 '. A word contains no white space and no control characters.
-- Out  find, DIGITS, WORD, NO_NUMBER, NO_WORD
local find = string.find
local DIGITS, WORD = '^%d+$', '^[!-~\128-\255]+$'
local NO_NUMBER = 'LUAGATE %s: not a number or out of range. Accepted: %.0f to %.0f, in decimal digits'
local NO_WORD = 'LUAGATE %s: wrong length or character. Accepted: 1 to %d bytes without white space or control characters'
local problem
local function refuse(text) problem = problem or 'LUAGATE ' .. text end
-- ARGV[at] as a number.
local function number(at, name, least, most)
  local value = find(ARGV[at] or '', DIGITS) and ARGV[at] + 0
  if value and value >= least and value <= most then return value end
  problem = problem or string.format(NO_NUMBER, name, least, most)
end
-- ARGV[at] as a word of at most `most` bytes.
local function word(at, name, most)
  local text = ARGV[at] or ''
  if #text > most or not find(text, WORD) then problem = problem or string.format(NO_WORD, name, most) end
  return text
end
-- Checks the numbers of keys and arguments.
local function takes(keys, key_count, arguments, count)
  if #KEYS ~= key_count then refuse('keys: wrong number of keys. Accepted: ' .. key_count .. ': ' .. keys) end
  -- Some clients remove white space at the end of an error, so no error ends with it.
  if #ARGV ~= count then
    refuse('arguments: wrong number of arguments. Accepted: ' .. count .. (count > 0 and ': ' .. arguments or ''))
  end
end
takes('meta holders queue', 3, 'id', 1)
local id = word(1, 'id', 200)
-- Part: the server's time, read once: before Redis 7.2 it advances while a script runs.
-- Out  call, clock (the reply: seconds and microseconds), micros, now (in ms)
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
-- Part: load. Reads the state, and the record of the caller's id. Writes nothing.
-- In   id (may be empty), problem (an error found before: then nothing is read), call, now, micros
-- Out  problem (the script returns it), VERSION, STATE, PLAIN_HOLDER, PLAIN_HOLDER_SIZE, HOLDER, HOLDER_SIZE, WAITER,
--      WAITER_SIZE, NEVER, MANY, meta, holders, queue (the keys), state (its text), is_known (it is readable), suspended, pinned,
--      limit, extra_weight, next_end, last_end, expiry, last_fence, head_until, line_is_empty (as the state says), next_fence,
--      record (of the caller), fence, weight, least_end (of a holder: its fence, its permits, the end of its minimum hold),
--      changed, ttl_changed, wrote, records, renewed, lease_ended, is_permanent, is_new_holders, is_new_queue, latest (see below)
-- Part: the storage layout. Only this part defines the contents of the keys.
-- Out  VERSION, STATE, STATE_SIZE, PLAIN_HOLDER, PLAIN_HOLDER_SIZE, HOLDER, HOLDER_SIZE, WAITER, WAITER_SIZE
--
--   holders   sorted set: id, end of its lease in ms; inf: permanent
--             `<id> <permits left> <fence>`: permits released before their minimum hold ended, and its end
--   queue     sorted set: id, ticket
--   meta      hash: a record for each of these, and the field 'the state'. No id contains a space.
--
-- Records and the state are packed numbers. A script reads and writes them several times faster than decimal text.
--   a holder      fence; also permits and least_end (0: none), if it has more than one permit or a minimum hold
--   a waiter      permits, lease_ms, patience_until (the waiter's deadline on the server), asks_before (it plans to
--                 ask again this many ms before patience_until), at_least_ms; its inbox follows
--   'the state'   mode           4 times the version of this layout; + 2: resize pinned the limit; + 1: granting is suspended,
--                                because keys were lost, while a lease that is still known runs
--                 limit          0: none is stored
--                 extra_weight   the permits of all holders beyond one each
--                 next_end       no lease ends before this time
--                 last_end       no lease ends after this time, except permanent ones
--                 expiry         when the keys expire; 0: never
--                 last_fence     the last fence or ticket that was given
--                 head_until     while nothing is free, the first waiter stays first until this time; inf: no id waits
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
if problem then return redis.error_reply(problem) end
local ends, rank = call('ZSCORE', holders, id), call('ZRANK', queue, id)
if fence and ends and tonumber(ends) > now then
  return {'held', weight, fence, ends == 'inf' and -1 or tonumber(ends), now}
end
if rank and record and #record >= WAITER_SIZE and select(3, struct.unpack(WAITER, record)) > now then
  return {'queued', tonumber(call('ZSCORE', queue, id)), rank + 1, now}
end
return {'gone', now}
