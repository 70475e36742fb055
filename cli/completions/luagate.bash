# Completes `luagate` in bash.
_luagate() {
    local i
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        # Another command follows, which has its own completions.
        if declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
        elif ((i + 1 == COMP_CWORD)); then
            COMPREPLY=($(compgen -c -- "$2"))
        else
            compopt -o default 2>/dev/null
        fi
        return
    done
    # COMP_WORDS is split at `:` and `=`, which names and options contain.
    local line=${COMP_LINE:0:COMP_POINT} words
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local last=$((${#words[@]} - 1))
    local kept=${words[last]} IFS=$'\n'
    [[ $COMP_WORDBREAKS == *:* ]] && kept=${kept%"${kept##*[:=]}"} || kept=${kept%"${kept##*=}"}
    COMPREPLY=($(luagate complete "$last" -- "${words[@]}" 2>/dev/null | cut -f 1))
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -F _luagate luagate
