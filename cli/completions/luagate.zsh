#compdef luagate
# Completes `luagate` in zsh.
_luagate() {
    local separator=${words[(i)--]}
    if ((separator < CURRENT)); then
        # Another command follows, which has its own completions.
        shift $separator words
        ((CURRENT -= separator))
        _normal
        return
    fi
    local -a lines items
    local line
    lines=("${(@f)$(luagate complete $((CURRENT - 1)) -- "${(@Q)words}" 2>/dev/null)}")
    for line in $lines; do
        items+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe luagate items
}
if [[ $funcstack[1] == _luagate ]]; then
    _luagate "$@"
else
    compdef _luagate luagate
fi
