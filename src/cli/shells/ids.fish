
# Ids of sessions are asked for when they are wanted. Of the program on PATH: whoever only types a
# name has not yet said that it is to be run.
function __cowork_linux_wants_id
    set -l words (commandline -opc) (commandline -ct)
    set -g __cowork_linux_ids (command cowork-linux __ids $words[2..-1] 2>/dev/null)
end
complete -c cowork-linux -n __cowork_linux_wants_id -f -a '$__cowork_linux_ids'
complete -c cowork-linux -n __cowork_linux_wants_id -l session -x -a '$__cowork_linux_ids'
