-- Part: what is stored, as the scripts use it once no plain case was met: the record of an id, and the scores of `holders`.
local NEVER = math.huge
local readable = is_known or not state
pinned = pinned == 1
local closed = gate == 1

-- A holder: its fence and its permits. Nothing for a waiter.
local function holding(text)
  if text and #text == 8 then return struct.unpack('<d', text), 1 end
  if text and #text == 16 then return struct.unpack('<dd', text) end
end

local function holder_text(fence, permits)
  return permits == 1 and struct.pack('<d', fence) or struct.pack('<dd', fence, permits)
end

-- A waiter: permits, lease_ms, until when it has patience, when it asks again, its inbox. Nothing for a holder.
local function waiter(text)
  if not text or #text < 32 then return end
  local permits, lease_ms, patience, ask_at = struct.unpack('<dddd', text)
  return permits, lease_ms, patience, ask_at, string.sub(text, 33)
end

local function waiter_text(permits, lease_ms, patience, ask_at, inbox)
  return struct.pack('<dddd', permits, lease_ms, patience, ask_at) .. inbox
end

-- A score as a time in a reply: -1 stands for never.
local function as_time(score)
  return score == 'inf' and -1 or tonumber(score)
end
