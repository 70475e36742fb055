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
takes('meta holders queue', 3, 'offset count', 2)
local offset, count = number(1, 'offset', 0, 2147483647), number(2, 'count', 0, 1000)
local call = redis.call
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = (micros - micros % 1000) / 1000 -- ms
local id = ''
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
local waiting, gives_back = call('ZCARD', queue)
local held = call('ZCARD', holders)
local in_use = suspended and 2147483647 or held + extra_weight -- while suspended no request fits under any limit
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
  local ended, sum = held - live, 0
  local first, last = '-inf', now
  if live < ended then first, last = '(' .. now, '+inf' end
  for from = 0, math.min(live, ended, 1000) - 1, 100 do
    for _, row in ipairs(holdings(call('ZRANGEBYSCORE', holders, first, last, 'LIMIT', from, 100))) do sum = sum + row[2] - 1 end
  end
  in_use = live + (live < ended and sum or extra_weight - sum)
end
local function split(reply)
  local ids, scores = {}, {}
  for i = 1, #reply, 2 do ids[#ids + 1], scores[#ids + 1] = reply[i], tonumber(reply[i + 1]) end
  return ids, scores
end
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
