-- Part: the server's time, asked for once: before Redis 7.2 it moves while a script runs.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) -- ms
