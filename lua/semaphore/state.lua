-- Part: what was read, as numbers, and what it means.
local NEVER = 9e15 -- later than any time in ms

local last_fence = tonumber(stored[2] or 0)
local limit = 0          -- 0: none is stored
local extra = 0          -- what the holders weigh beyond one each
local next_end = NEVER   -- no lease ends before this
local last_end = 0       -- no lease ends after this, but for permanent ones
local expiry = now       -- when the keys go; 0: they stay
local pinned = false     -- the limit was set by resize
local closed = false     -- keys were lost: nothing is granted while a lease that is still known runs
local readable = not stored[1]
if stored[1] then
  local a, b, c, d, e, f, g = string.match(stored[1], '^(%d+) (%d+) (%S+) (%d+) (%d+) ([01]) ([01])$')
  if a and stored[2] then
    limit, extra, next_end, last_end, expiry = a + 0, b + 0, c + 0, d + 0, e + 0
    pinned, closed, readable = f == '1', g == '1', true
  end
end

-- What a record says of a holder: its fence and its permits. Nothing for a waiter.
local function holding(text)
  local fence, permits = string.match(text or '', '^(%d+) ?(%d*)$')
  if fence then return fence + 0, permits == '' and 1 or permits + 0 end
end

-- A score as a time in a reply: -1 stands for never.
local function as_time(score)
  return score == 'inf' and -1 or tonumber(score)
end
