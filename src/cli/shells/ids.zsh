    # Ids of sessions are asked for when they are wanted. Of the program on PATH: whoever only types
    # a name has not yet said that it is to be run.
    local found
    if found=$(command cowork-linux __ids "${(@)words[2,CURRENT]}" 2>/dev/null); then
        local -a ids=(${(f)found})
        compadd -a ids
        return
    fi
