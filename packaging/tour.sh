# What `make run` shows: ten lines, printed by a program inside a box, each one tried out before it is said.
#
#   sh -c "$(cat packaging/tour.sh)" tour HOME UID
#
# HOME and UID are the caller's outside the box. A line that cannot be said truthfully starts with WRONG
# and makes the tour fail.
# shellcheck shell=sh
home=$1
uid=$2
failed=0

# say RESULT TEXT: the result is that of the attempt, 0 when it went as the text says.
say() {
    if [ "$1" -eq 0 ]; then
        echo "$2"
    else
        failed=1
        echo "WRONG, this does not hold: $2"
    fi
}

writable() { (: >"$1/.tour" && rm "$1/.tour") 2>/dev/null; }
refused() { ! "$@"; }
gone() { [ ! -e "$1" ] && ! ls -d "$1" >/dev/null 2>&1; }

echo "Hello from inside the box. Each of the next nine lines was tried just now, by an ordinary shell."

case $PWD in /sessions/*/mnt/*) true ;; *) false ;; esac
say $? "Where am I?      In $PWD, which is the folder you mounted."

# Root's box has a number of its own inside; its files are root's outside all the same.
{ [ "$(id -u)" = "$uid" ] || { [ "$uid" = 0 ] && [ "$(id -u)" != 0 ]; }; } &&
    grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status
say $? "Who am I?        uid $(id -u), and outside my files are yours; no capability is left to me."

echo "written by the tour" >tour.txt && writable /tmp && writable "$HOME"
say $? "I can write      this folder (tour.txt is there now), my private /tmp, and my own home $HOME."

refused writable / && refused writable /usr && refused writable /etc
say $? "I cannot write   /, /usr and /etc: I see your programs, and can change none of them."

gone "$home/.ssh"
say $? "Your keys        $home/.ssh does not exist in here."

gone "$home"
say $? "Your home        neither does $home, unless you mount it."

foreign=0
for entry in /proc/[0-9]*; do
    [ "$entry" = /proc/1 ] || [ "$entry" = "/proc/$$" ] || foreign=$((foreign + 1))
done
[ "$foreign" -eq 0 ]
say $? "Your processes   I see two, myself and the first process of the box, and none of yours."

[ "$(grep -c : /proc/net/dev)" -eq 1 ] && grep -q '^ *lo:' /proc/net/dev
say $? "The network      there is none, only a loopback of my own."

refused cat /etc/shadow >/dev/null 2>&1
say $? "Your passwords   /etc/shadow cannot be read. That was the tour: make run CMD=\"claude\" MOUNT=dir"

exit "$failed"
