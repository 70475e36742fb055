-- Part: next expiry. What a caller is told that is denied.
-- Out  next_expiry: ms until the next lease expires, or the last one while suspended, or else the patience of the first waiter
local score = not stopped and call(suspended and 'ZREVRANGE' or 'ZRANGE', holders, '0', '0', 'WITHSCORES')[2]
local ends_at = stopped and now or score and score ~= 'inf' and score or waiting > 0 and head_until
local next_expiry = ends_at and math.max(1, ends_at - now) or -1
