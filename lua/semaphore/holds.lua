-- Part for scripts of your own: put it in front of them. `holds` is true while the permit with this id and fence lives, so
-- "do this only while it does" is one atomic step. Declare the semaphore's keys; `fence` is text, as it came in ARGV.
local function holds(meta, holders, id, fence)
  local ends = redis.call('ZSCORE', holders, id)
  local clock = redis.call('TIME')
  if not ends or tonumber(ends) <= clock[1] * 1000 + math.floor(clock[2] / 1000) then return false end
  return fence ~= nil and string.match(redis.call('HGET', meta, id) or '', '^%d+') == fence
end
