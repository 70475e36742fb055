-- Part for scripts of users: put its text before theirs. `holds` returns true while the permit with this id and fence is held,
-- so "do this only while I hold it" is one atomic step. Declare the semaphore's keys. `fence` is text, as it came in ARGV.
local function holds(meta, holders, id, fence)
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
  local stored = redis.call('HMGET', meta, 'the state', id)
  local version = stored[1] and math.floor((string.byte(stored[1]) or 0) / 4)
  if version and version ~= VERSION then
    error('LUAGATE layout: the stored state has version ' .. version .. '. Accepted: version ' .. VERSION
      .. '. Use scripts of one version in all programs that share a semaphore')
  end
  local ends, clock = redis.call('ZSCORE', holders, id), redis.call('TIME')
  if not ends or tonumber(ends) <= clock[1] * 1000 + math.floor(clock[2] / 1000) then return false end
  local record = stored[2]
  local is_holder = record and (#record == PLAIN_HOLDER_SIZE or #record == HOLDER_SIZE)
  return is_holder and struct.unpack(PLAIN_HOLDER, record) == tonumber(fence) or false
end
