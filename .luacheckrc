-- What luacheck knows of lua/. It checks the scripts in the form that the server receives: a part alone is not a program.
std = "lua51"
max_line_length = 130
include_files = { "lua/dist/**/*.lua" }
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct" }
ignore = { "211", "221", "231", "311" } -- a script need not use all of a part that it shares with others
