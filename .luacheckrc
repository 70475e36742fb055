-- What luacheck knows of the scripts. `./dev manifest check` gives it each script with all its parts, since a part alone is not a
-- program, and with all comments.
std = "lua51"
max_line_length = 130
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct" }
ignore = { "211", "221", "231", "311" } -- a script need not use all of a part that it shares with others
