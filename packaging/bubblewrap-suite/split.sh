# shellcheck shell=bash
# Read into test-run.sh before its first check, by inside.sh. A failing command or assertion no longer ends the
# script: it makes the check it belongs to a "not ok", and the next check has its own chance.

set +eu
check_failed=false
trap '{ set +x; } 2>/dev/null; check_failed=true; echo "failed: $BASH_COMMAND" >&2; set -x' ERR

fatal() {
    { set +x; } 2>/dev/null
    check_failed=true
    echo "failed: $*" >&2
    set -x
}

# The verdict also goes to the log, where it ends the lines of its check.
ok() {
    { set +x; } 2>/dev/null
    local verdict=ok
    ! $check_failed || verdict="not ok"
    check_failed=false
    test_count=$((test_count + 1))
    echo "$verdict $test_count $*"
    echo "$verdict $test_count $*" >&2
    echo >&"$heartbeat"
    set -x
}

kill_below() {
    local child
    for child in $(pgrep -P "$1"); do
        [ "$child" -ne "$BASHPID" ] || continue
        kill_below "$child"
        kill -KILL "$child"
    done
}

# A check that hangs is ended by killing what it started.
watch_checks() {
    local status
    set +x
    while true; do
        status=0
        read -r -t 30 || status=$?
        if [ "$status" -gt 128 ]; then
            echo "failed: no result within 30 seconds" >&2
            kill_below $$
        elif [ "$status" -ne 0 ]; then
            return 0 # the script has ended
        fi
    done
}
exec {heartbeat}> >(watch_checks)
