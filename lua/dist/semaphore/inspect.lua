-- semaphore/inspect: lists holders and waiters. Writes nothing. Ended leases are neither listed nor counted.
--
-- KEYS  meta holders queue
-- ARGV  offset   how many holders, and how many waiters, to skip
--       count    how many of each to list at most, 0 to 1000
-- REPLY limit pinned in_use holder_count waiter_count last_fence now holders waiters
--
-- The reply does not begin with a word. `holders` has a list for each: id permits fence expires_at cooling_down; in the order of
-- the ends. cooling_down is 1 for permits that were released before their minimum hold ended: they have no holder until then.
-- `waiters` has a list for each: id permits ticket patience_until; in the order of the queue.
-- in_use is exact if at most 1,000 leases have ended, or at most 1,000 run. waiter_count is exact if at most 1,000 ids wait.
-- Beyond that in_use is approximate, and waiter_count may include waiters whose patience has ended.
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
takes('meta holders queue', 3, 'offset count', 2)
local offset, count = number(1, 'offset', 0, 2147483647), number(2, 'count', 0, 1000)
-- Part: the server's time, read once: before Redis 7.2 it advances while a script runs.
-- Out  call, clock (the reply: seconds and microseconds), micros, now (in ms)
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local id = ''
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
local waiting, gives_back = call('ZCARD', queue)
-- Part: count. Counts the holders, and checks that the keys are consistent. If a key was evicted, or restored without the
-- others, there are too many or too few records. Nothing is granted before this check. Writes nothing.
-- In   waiting (nil: not read yet), gives_back (the caller releases its permits, and their lease has not ended), call, meta,
--      holders, queue, state, is_known, suspended, limit, extra_weight, last_end, now, MANY
-- Out  held (the number of holders), in_use, consistent, waiting, line (the first two waiters, if read)
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
-- A call that can grant no more than it gives back leaves the check to the next call.
local consistent = gives_back and (waiting == 0 or in_use >= limit)
local line
if not consistent then
  waiting = waiting or call('ZCARD', queue)
  local fields = call('HLEN', meta)
  if state then
    consistent = is_known and fields == 1 + waiting + (suspended and 0 or held)
      and not (suspended and held == 0 and last_end > now) -- holders was lost while granting was suspended
  else
    consistent = fields + held + waiting == 0
  end
elseif not waiting then -- before the first write, so that a queue of a wrong type is an error that changes nothing
  line = call('ZRANGE', queue, '0', '1')
  waiting = #line < 2 and #line or MANY
end
-- Fence and permits of each id; zeros for an id without a holder's record.
local function holdings(ids)
  local list = {}
  for i, text in ipairs(#ids > 0 and call('HMGET', meta, unpack(ids)) or {}) do
    list[i] = text and (#text == PLAIN_HOLDER_SIZE and {struct.unpack(PLAIN_HOLDER, text), 1}
      or #text == HOLDER_SIZE and {struct.unpack(HOLDER, text)}) or {0, 0}
  end
  return list
end
local live = call('ZCOUNT', holders, '(' .. now, '+inf')
in_use = live
if suspended or not consistent then
  in_use = math.max(limit, live)
elseif extra_weight > 0 then
  -- Reads the permits of the ended leases or of the running ones, whichever are fewer.
  local ended, sum = held - live, 0
  local first, last = '-inf', now
  if live < ended then first, last = '(' .. now, '+inf' end
  for from = 0, math.min(live, ended, 1000) - 1, 100 do
    for _, row in ipairs(holdings(call('ZRANGEBYSCORE', holders, first, last, 'LIMIT', from, 100))) do sum = sum + row[2] - 1 end
  end
  in_use = live + (live < ended and sum or extra_weight - sum)
end
-- Splits a reply into ids and scores.
local function split(reply)
  local ids, scores = {}, {}
  for i = 1, #reply, 2 do ids[#ids + 1], scores[#ids + 1] = reply[i], tonumber(reply[i + 1]) end
  return ids, scores
end
-- Returns the waiters at these places whose patience has not ended, and the number of those whose patience has.
local function waiters(from, to)
  local list, over = {}, 0
  local ids, tickets = split(call('ZRANGE', queue, from, to, 'WITHSCORES'))
  for i, text in ipairs(#ids > 0 and call('HMGET', meta, unpack(ids)) or {}) do
    local permits, _, patience = struct.unpack(WAITER, text and #text >= WAITER_SIZE and text or string.rep('\0', WAITER_SIZE))
    if patience > now then list[#list + 1] = {ids[i], permits, tickets[i], patience} else over = over + 1 end
  end
  return list, over
end
for from = 0, math.min(waiting, 1000) - 1, 100 do
  waiting = waiting - select(2, waiters(from, from + 99))
end
local holder_list, waiter_list = {}, {}
if count > 0 then
  waiter_list = waiters(offset, offset + count - 1)
  local ids, ends = split(call('ZRANGEBYSCORE', holders, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', offset, count))
  for i, row in ipairs(holdings(ids)) do
    local released = string.match(ids[i], '^(%S+) %d+ %d+$')
    holder_list[i] = {released or ids[i], row[2], row[1], ends[i] == NEVER and -1 or ends[i], released and 1 or 0}
  end
end
return {limit, pinned and 1 or 0, in_use, live, waiting, last_fence, now, holder_list, waiter_list}
