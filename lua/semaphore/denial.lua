-- Part: when somebody who was not granted should ask again.

-- For place k in line, the time until the k-th lease to end has ended. Nothing where that never ends.
local function end_of(place_in_line)
  local score = closed and call('ZREVRANGE', holders, '0', '0', 'WITHSCORES')[2]
    or call('ZRANGE', holders, place_in_line - 1, place_in_line - 1, 'WITHSCORES')[2]
  if score and score ~= 'inf' then return math.max(1, tonumber(score) - now) end
end

-- For whoever does not stand in line.
local function ask_again()
  return stopped and 1 or end_of(1) or head_until and math.max(1, head_until - now) or -1
end
