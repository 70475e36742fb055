# Completes `luagate` in fish.
function __luagate_words
    luagate complete (count (commandline -opc)) -- (commandline -opc) (commandline -ct) 2>/dev/null
end
function __luagate_runs_command
    contains -- -- (commandline -opc)
end
# Another command, which has its own completions.
function __luagate_command
    set -l words (commandline -opc)
    set -l first (math (contains -i -- -- $words) + 1)
    set -l before
    test $first -le (count $words); and set before (string escape -- $words[$first..-1])
    complete -C "$before "(commandline -ct)
end
complete -c luagate -f -n 'not __luagate_runs_command' -a '(__luagate_words)'
complete -c luagate -f -n __luagate_runs_command -a '(__luagate_command)'
