# What install.sh and uninstall.sh have in common. Read by them, never run.
# shellcheck shell=bash disable=SC2034 # what is set here is used there

# The only two lines of the environment file that are ours to change.
backend_key=COWORK_VM_BACKEND
program_key=COWORK_NODE_PATH
helper=/usr/lib/claude-desktop/resources/cowork-linux-helper
# doctor --desktop knows our script by these words.
mark='cowork-linux dispatcher'

root=
dry_run=
program=
way=

die() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '  help: %s\n' "$2" >&2
    exit 1
}

say() {
    printf '%s\n' "$1"
}

# Says what is done, and does it unless it is only to be said.
change() {
    local what=$1
    shift
    if [ -n "$dry_run" ]; then
        say "would $what"
    else
        "$@"
        say "done: $what"
    fi
}

read_words() {
    while [ $# -gt 0 ]; do
        case $1 in
            unofficial | official)
                [ -z "$way" ] || die "two ways in at once: $way and $1"
                way=$1
                ;;
            --dry-run) dry_run=yes ;;
            --program | --root)
                case ${2:-} in
                    /*) ;;
                    *) die "$1 wants a path that begins with a /" ;;
                esac
                if [ "$1" = --program ]; then program=$2; else root=${2%/}; fi
                shift
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            *) die "cannot read \`$1\`" "$0 --help lists every word" ;;
        esac
        shift
    done
    [ -n "$way" ] || choose_way
}

choose_way() {
    local has_unofficial='' has_official=''
    [ ! -d "$root/usr/lib/claude-desktop-unofficial" ] || has_unofficial=yes
    [ ! -d "$root/usr/lib/claude-desktop" ] || has_official=yes
    case $has_unofficial,$has_official in
        yes,yes) die 'both apps are installed' "say which: $0 unofficial, or $0 official" ;;
        yes,) way=unofficial ;;
        ,yes) way=official ;;
        *) die "no Claude Desktop in $root/usr/lib" "install it first, or say which one you mean: $0 unofficial" ;;
    esac
}

# A file's lines without those that set one of our two variables.
others() {
    awk -v one="$backend_key" -v other="$program_key" '
        { name = $0; sub(/=.*/, "", name); gsub(/[[:space:]]/, "", name) }
        !(index($0, "=") && (name == one || name == other))' "$1"
}

# The first value of a variable: the one that the package takes.
value_of() {
    awk -v wanted="$1" '
        { name = $0; sub(/=.*/, "", name); gsub(/[[:space:]]/, "", name) }
        index($0, "=") && name == wanted {
            value = substr($0, index($0, "=") + 1)
            gsub(/^[[:space:]]+|[[:space:]]+$/, "", value)
            print value
            exit
        }' "$2"
}

find_environment() {
    local config=${XDG_CONFIG_HOME:-}
    [ -n "$config" ] || config=${HOME:?HOME is not set}/.config
    [ -z "${SUDO_USER:-}" ] ||
        die 'this is for the user who uses the app, and not for root' 'leave out sudo'
    environment=$config/claude-desktop-debian/environment
    # Somebody who keeps settings elsewhere keeps the link.
    [ ! -L "$environment" ] || environment=$(readlink -f -- "$environment")
    backup=$environment.before-cowork-linux
}

# The new text comes by standard input; readers see the old file or the new one, never a part.
replace_environment() {
    local draft
    draft=$(mktemp -- "$environment.XXXXXX")
    # shellcheck disable=SC2064 # this draft, whatever the name means later
    trap "rm -f -- '${draft//\'/\'\\\'\'}'" EXIT
    cat >"$draft"
    [ ! -e "$environment" ] || chmod --reference="$environment" -- "$draft"
    sync -- "$draft"
    mv -f -- "$draft" "$environment"
    trap - EXIT
}

# dpkg's, on this system or below another root.
divert() {
    dpkg-divert --quiet --root "${root:-/}" "$@"
}

# Where dpkg puts the file that the app's package brings.
true_name() {
    dpkg-divert --root "${root:-/}" --truename "$helper"
}

need_root() {
    command -v dpkg-divert >/dev/null ||
        die 'there is no dpkg-divert' 'this way is for Debian and Ubuntu; use the package claude-desktop-unofficial'
    [ -n "$root" ] || [ "$(id -u)" -eq 0 ] ||
        die "only root may change $helper" "sudo $0 official"
}

is_ours() {
    [ -f "$1" ] && head -c 4096 -- "$1" | grep -qF -- "$mark"
}
