-- Part for scripts of users: put its text before theirs. `holds` returns true while the permit with this id and fence is held,
-- so "do this only while I hold it" is one atomic step. Declare the semaphore's keys. `fence` is text, as it came in ARGV.
local function holds(meta, holders, id, fence)
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
