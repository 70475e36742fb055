-- Part: begins a function around the parts that follow, so that one script works on several mutexes: in it KEYS are those of
-- one of them. `opened` ends it.
local function open(KEYS)
