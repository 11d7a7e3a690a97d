
# Ids of sessions are asked for when they are wanted. Of the program on PATH: whoever only types a
# name has not yet said that it is to be run.
_cowork__linux_with_ids() {
    local words=("${COMP_WORDS[@]:1:COMP_CWORD-1}") found
    if found=$(command cowork-linux __ids "${words[@]}" "$2" 2>/dev/null); then
        COMPREPLY=()
        [[ -z "$found" ]] || mapfile -t COMPREPLY <<<"$found"
        compopt +o default +o bashdefault
        return 0
    fi
    _cowork__linux "$@"
}

complete -F _cowork__linux_with_ids -o nosort -o bashdefault -o default cowork-linux 2>/dev/null ||
    complete -F _cowork__linux_with_ids -o bashdefault -o default cowork-linux
