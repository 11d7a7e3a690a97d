#!/usr/bin/env bash
# Makes Claude Desktop start cowork-linux as its helper. See README.md beside this file.
set -euo pipefail
umask 022
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=packaging/claude-desktop/steps.sh
. "$here/steps.sh"

usage() {
    cat <<END
$0 [unofficial|official] [--program PATH] [--dry-run] [--root DIR]

  unofficial   the package claude-desktop-unofficial: two lines in your environment file, as yourself
  official     the package claude-desktop: a diversion of its helper, as root
  --program    cowork-linux, where it is not found by itself
  --dry-run    say what would be done
  --root       another system's root instead of /
END
}

find_program() {
    [ -n "$program" ] || program=$(command -v cowork-linux || true)
    [ -n "$program" ] || die 'cowork-linux is not in the PATH' '--program /path/to/cowork-linux'
    if [ ! -f "$program" ] || [ ! -x "$program" ]; then die "$program is not a program"; fi
    case $program in
        *[[:cntrl:]\']* | *' ') die "$program has a character in its name that the app does not take" ;;
    esac
    case $("$program" --version 2>/dev/null || true) in
        'cowork-linux '*) ;;
        *) die "$program is not cowork-linux" ;;
    esac
}

make_environment() {
    if [ -e "$environment" ]; then
        # The first one is what there was before us.
        [ -e "$backup" ] || cp -p -- "$environment" "$backup"
    else
        umask 077
        mkdir -p -- "${environment%/*}"
    fi
    {
        if [ -e "$environment" ]; then others "$environment"; fi
        printf '%s=bwrap\n%s=%s\n' "$backend_key" "$program_key" "$program"
    } | replace_environment
}

unofficial() {
    find_environment
    if [ -e "$environment" ] &&
        [ "$(value_of "$backend_key" "$environment")" = bwrap ] &&
        [ "$(value_of "$program_key" "$environment")" = "$program" ]; then
        say "nothing to do: $environment names $program"
        return
    fi
    change "set $backend_key and $program_key in $environment" make_environment
    say 'quit the app (File > Exit) and start it again; then: cowork-linux doctor --desktop'
}

# Whoever could replace the program could run commands as everybody who uses the app.
need_safe_program() {
    need_safe "$program"
    need_safe "$(readlink -f -- "$program")"
}

need_safe() {
    local part=$1
    while :; do
        [ "$(stat -Lc %u -- "$part")" -eq "$(id -u)" ] || [ "$(stat -Lc %u -- "$part")" -eq 0 ] ||
            die "$part belongs to somebody else" 'install cowork-linux where only root can write, such as /usr/local/bin'
        [ -z "$(find -L "$part" -maxdepth 0 -perm /022 ! -perm /1000)" ] ||
            die "others can write to $part" 'install cowork-linux where only root can write, such as /usr/local/bin'
        [ "$part" != / ] || break
        part=$(dirname -- "$part")
    done
}

dispatcher() {
    cat <<END
#!/bin/sh
# $mark: what Claude Desktop starts as its helper. packaging/claude-desktop/uninstall.sh takes it away.
# With COWORK_LINUX_HELPER=original in the app's environment, and where cowork-linux is gone, the app's own helper runs.
if [ "\${COWORK_LINUX_HELPER:-}" != original ] && [ -x '$program' ]; then
    exec '$program' helper "\$@"
fi
original=\${0%/*}/${helper##*/}.original
[ -x "\$original" ] || original='$helper.original'
exec "\$original" "\$@"
END
}

make_dispatcher() {
    local draft
    draft=$(mktemp -- "$root$helper.XXXXXX")
    dispatcher >"$draft"
    chmod 755 -- "$draft"
    mv -f -- "$draft" "$root$helper"
}

official() {
    need_root
    need_safe_program
    local aside
    aside=$(true_name)
    case $aside in
        "$helper" | "$helper.original") ;;
        *) die "$helper is diverted to $aside already" 'whoever did that has to undo it first' ;;
    esac
    [ -e "$root$aside" ] ||
        die "there is no $root$aside" 'install Claude Desktop 1.17377 or newer'
    if [ "$aside" = "$helper" ]; then
        if is_ours "$root$helper"; then
            die "$helper is ours, but dpkg does not know where the original is" 'reinstall the app, then try again'
        fi
        change "let dpkg put the app's own helper at $helper.original" \
            divert --local --rename --divert "$helper.original" --add "$helper"
    fi
    if is_ours "$root$helper" && dispatcher | cmp -s -- - "$root$helper"; then
        say "nothing to do: $helper starts $program"
        return
    fi
    change "put a script at $helper that starts $program" make_dispatcher
    say 'quit the app (File > Exit) and start it again; then: cowork-linux doctor --desktop'
}

read_words "$@"
find_program
"$way"
