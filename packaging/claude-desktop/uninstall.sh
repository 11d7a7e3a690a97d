#!/usr/bin/env bash
# Takes back what install.sh did, and nothing else. See README.md beside this file.
set -euo pipefail
umask 022
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=packaging/claude-desktop/steps.sh
. "$here/steps.sh"

usage() {
    cat <<END
$0 [unofficial|official] [--program PATH] [--dry-run] [--root DIR]

  unofficial   your environment file, as yourself: the two lines become what they were
  official     the diversion of the helper, as root
  --program    cowork-linux as it was installed, where it has another name
  --dry-run    say what would be done
  --root       another system's root instead of /
END
}

# Our two lines go; what they were before comes back; what else was changed since stays.
restore_environment() {
    local key old
    {
        others "$environment"
        for key in "$backend_key" "$program_key"; do
            old=
            [ ! -e "$backup" ] || old=$(value_of "$key" "$backup")
            [ -z "$old" ] || printf '%s=%s\n' "$key" "$old"
        done
    } | replace_environment
    if [ ! -e "$backup" ] && ! grep -q '[^[:space:]]' -- "$environment"; then
        rm -f -- "$environment"
    fi
    rm -f -- "$backup"
}

unofficial() {
    find_environment
    local named=
    [ ! -e "$environment" ] || named=$(value_of "$program_key" "$environment")
    case $named in
        '')
            say "nothing to do: $environment names no program"
            return
            ;;
        */cowork-linux | */cowork-linux-helper | */cowork-svc-linux | "$program") ;;
        *)
            say "nothing to do: $environment names $named, which is not ours"
            return
            ;;
    esac
    change "take $backend_key and $program_key out of $environment" restore_environment
}

official() {
    need_root
    case $(true_name) in
        "$helper")
            say "nothing to do: $helper is not diverted"
            return
            ;;
        "$helper.original") ;;
        *) die "$helper is diverted by somebody else" 'whoever did that has to undo it' ;;
    esac
    if [ -e "$root$helper" ]; then
        is_ours "$root$helper" || die "$helper is not ours" 'look at it, and move it away'
        change "remove the script at $helper" rm -f -- "$root$helper"
    fi
    change "let dpkg put the app's own helper back" \
        divert --local --rename --divert "$helper.original" --remove "$helper"
}

read_words "$@"
"$way"
