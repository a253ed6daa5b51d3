#!/usr/bin/env bash
# Installs a Debian package of Stroop into a fresh root, and does there what its user does first:
#
#   scripts/try-package.sh target/dist/stroop_0.1.0_amd64.deb
#
# The root has this machine's essential packages and what the package needs, copied from their lists,
# with a database of packages of its own: dpkg and the maintainer scripts work there as on a new
# machine, and nothing is fetched. The server runs there as its unit runs it: as the user stroop, with
# the unit's capabilities and no others. Nothing is installed on this machine.
#
# Needs root on Debian. Whatever was not tried, for want of that or of a tool (man, zsh, fish, lintian,
# systemd-analyze), is said at the end, and the exit status is 77: never 0. The same lines go to the
# file that TRY_PACKAGE_GAPS names.
set -euo pipefail

package=$(readlink -f "${1:?usage: scripts/try-package.sh PACKAGE}")

gaps=()
gap() { gaps+=("$*"); }
# Ends with what was not tried, if anything.
tell_gaps() {
    [ ${#gaps[@]} -gt 0 ] || return 0
    printf 'package: NOT TRIED: %s\n' "${gaps[@]}" >&2
    [ -z "${TRY_PACKAGE_GAPS:-}" ] || printf '%s\n' "${gaps[@]}" >"$TRY_PACKAGE_GAPS"
    exit 77
}

if [ "$(id -u)" != 0 ] || ! command -v dpkg >/dev/null; then
    gap "nothing of the package was tried: that takes root, on Debian"
    tell_gaps
fi
if [ -z "${TRY_PACKAGE_INSIDE:-}" ]; then
    # What is mounted below is seen by nobody else, and gone at the end.
    TRY_PACKAGE_INSIDE=1 exec unshare --mount --propagation private "$(readlink -f "$0")" "$package"
fi

work=$(mktemp -d)
root=$work/root
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    chattr -f -i "$root/srv/home" 2>/dev/null || true
    umount --lazy --recursive "$root/srv/home" "$root/proc" "$root/dev" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

say() { echo "== package: $*"; }
fail() {
    echo "package: $*" >&2
    [ ! -f "$work/log" ] || tail -n 20 "$work/log" >&2
    exit 1
}
# The answer must have the words.
has() { grep -q -F -- "$2" <<<"$1" || fail "'$2' is not in: $1"; }

make_root() {
    local wanted depends
    mkdir -p "$root"/{usr/{bin,sbin,lib,lib64},etc,var/lib/dpkg/{info,updates},proc,dev,srv/home,run,tmp}
    for link in bin sbin lib lib64; do ln -s "usr/$link" "$root/$link"; done
    depends=$(dpkg-deb --field "$package" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g')
    # shellcheck disable=SC2016 # dpkg's own variables
    wanted=$(dpkg-query --show --showformat '${Essential} ${Package}\n' | sed -n 's/^yes //p')
    # shellcheck disable=SC2086 # words
    wanted=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts \
        --no-breaks --no-replaces --no-enhances $wanted $depends | grep '^[a-z0-9]' | sort -u)
    # shellcheck disable=SC2086 # words
    dpkg-query --status $wanted >"$root/var/lib/dpkg/status" 2>/dev/null || true
    # Some of the files are left out where the machine is a container (documents).
    # shellcheck disable=SC2086 # words
    { dpkg-query --listfiles $wanted 2>/dev/null || true; } | grep '^/.' | sort -u >"$work/files"
    { tar --create --file - --no-recursion --files-from "$work/files" 2>/dev/null || true; } |
        tar --extract --file - --directory "$root" --keep-directory-symlink
    for name in $wanted; do
        cp /var/lib/dpkg/info/"$name".list /var/lib/dpkg/info/"$name":*.list \
            "$root/var/lib/dpkg/info/" 2>/dev/null || true
    done
    # What their own scripts made when they were installed.
    cp /usr/share/base-passwd/passwd.master "$root/etc/passwd"
    cp /usr/share/base-passwd/group.master "$root/etc/group"
    cp -r /etc/ld.so.cache /etc/pam.d "$root/etc/"
    chmod 1777 "$root/tmp"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev"
    mknod -m 666 "$root/dev/null" c 1 3
    mknod -m 666 "$root/dev/urandom" c 1 9
    # As udev makes it where fuse3 is installed.
    mknod -m 666 "$root/dev/fuse" c 10 229
}

as_inside=(chroot "$root" /usr/bin/env -i PATH=/usr/bin:/usr/sbin DEBIAN_FRONTEND=noninteractive)
inside() { "${as_inside[@]}" "$@"; }

install_package() { dpkg --root="$root" --install "$package" >"$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"; }

# As systemd would start it.
serve() {
    local capabilities
    capabilities=$(sed -n 's/^AmbientCapabilities=CAP_//p' "$unit" | tr '[:upper:]' '[:lower:]')
    capabilities=-all$(sed 's/\(^\| \)\(cap_\)\?/,+/g' <<<"$capabilities")
    rm -f "$work/fifo" "$work/log"
    mkfifo "$work/fifo"
    # A program and no function, so that its number is that of the server.
    "${as_inside[@]}" setpriv --reuid stroop --regid stroop --clear-groups --no-new-privs \
        --bounding-set "$capabilities" --inh-caps "$capabilities" --ambient-caps "$capabilities" \
        stroop serve 2>"$work/fifo" &
    server=$!
    exec 3<"$work/fifo"
    while read -r line <&3; do
        echo "$line" >>"$work/log"
        [[ $line != *' ready '* ]] || break
    done
    cat <&3 >>"$work/log" &
    grep -q ' ready ' "$work/log" || fail "the server ended"
}

try_first_steps() {
    local version rebuilt
    version=$(dpkg-deb --field "$package" Version)
    has "$(inside stroop --version)" "stroop $version"
    [ "$(stat -c '%U %G %a' "$root/var/lib/stroop")" = "UNKNOWN UNKNOWN 700" ] ||
        [ "$(inside stat -c '%U %G %a' /var/lib/stroop)" = "stroop stroop 700" ] ||
        fail "the state directory is not the user's alone"
    [ ! -e "$root/etc/stroop/stroop.toml" ] || fail "there is a configuration already"
    has "$(inside stroop init --dev-disks 5x64M --nfs 127.0.0.1:0 --memory 256M --journal-size 16M)" \
        "systemctl start stroop"
    serve
    has "$(inside stroop aggr create a1 --disks 4 --raid raid4)" "survives 1 disk failure"
    has "$(inside stroop volume create home --aggr a1 --size 100M --export 127.0.0.1:rw)" "home: "
    has "$(inside stroop mount home /srv/home)" "/srv/home"
    echo "first" >"$root/srv/home/file"
    inside stroop sync home >/dev/null
    inside stroop snapshot create home@before >/dev/null
    echo "second" >"$root/srv/home/file"
    [ "$(cat "$root/srv/home/.snapshot/before/file")" = first ] || fail "the snapshot is not as it was"
    # Root may not: its files would keep the service out.
    has "$(inside stroop serve 2>&1 || true)" "root starts no server on"
    # The user stroop may do what a lost disk takes.
    inside stroop disk spare add d5 >/dev/null
    inside stroop disk fail d2 --yes >/dev/null
    rebuilt=
    for _ in $(seq 1000); do
        ! inside stroop job wait 1 >/dev/null 2>&1 || { rebuilt=yes; break; }
    done
    [ -n "$rebuilt" ] || fail "no spare was rebuilt: $(inside stroop job list)"
    inside stroop disk zero d2 --yes >/dev/null
    [ "$(cat "$root/srv/home/file")" = second ] || fail "the lost disk cost data"
    inside stroop status --check >/dev/null || fail "the new server is not healthy: $(inside stroop status)"
    has "$(inside find /var/lib/stroop ! -user stroop -o -perm /077 ! -type s | wc -l)" 0
}

stop() {
    inside stroop shutdown >/dev/null
    wait "$server" || fail "the server did not stop cleanly"
    server=
}

try_upgrade_and_removal() {
    stop
    ! touch "$root/srv/home/stray" 2>/dev/null || fail "the directory below a mount is not sealed"
    install_package
    serve
    [ "$(cat "$root/srv/home/file")" = second ] || fail "the mount was not made again"
    stop
    echo "AWS_SECRET_ACCESS_KEY=x" >"$root/etc/stroop/environment"
    dpkg --root="$root" --purge stroop >"$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
    has "$(cat "$work/dpkg")" "kept /var/lib/stroop"
    has "$(cat "$work/dpkg")" "kept /etc/stroop/environment"
    # The mount was not given up: purging says how to open the directory below.
    has "$(cat "$work/dpkg")" "  /srv/home"
    has "$(cat "$work/dpkg")" "chattr -i"
    ! touch "$root/srv/home/stray" 2>/dev/null || fail "the directory below a mount is not sealed"
    chattr -i "$root/srv/home"
    chmod 755 "$root/srv/home"
    touch "$root/srv/home/stray" || fail "the directory below the mount cannot be opened again"
    [ -s "$root/var/lib/stroop/disks/d1.img" ] || fail "purging removed a disk"
    [ -n "$(ls "$root/var/lib/stroop/journal")" ] || fail "purging removed journals"
    [ ! -e "$root/etc/stroop/stroop.toml" ] && [ ! -e "$root/usr/bin/stroop" ] || fail "purging left something"
}

try_manual() {
    command -v man >/dev/null || { gap "man is missing: the manual was not read"; return; }
    local page
    for page in stroop stroop-volume-create mount.stroop; do
        has "$(man --warnings --manpath="$root/usr/share/man" --pager=cat "$page" 2>&1)" SYNOPSIS
    done
    page=$(man --warnings --manpath="$root/usr/share/man" --pager=cat stroop 2>&1)
    has "$page" "/etc/stroop/stroop.toml"
    [[ $page != *"warning:"* ]] || fail "the page has faults: $page"
}

try_completions() {
    local share=$root/usr/share completed
    completed=$(bash -c 'source "$1"; complete -p stroop >/dev/null; COMP_WORDS=(stroop vol)
        COMP_CWORD=1 _stroop stroop vol stroop; echo "${COMPREPLY[@]}"' - \
        "$share/bash-completion/completions/stroop")
    [ "$completed" = volume ] || fail "bash completes 'vol' as '$completed'"
    if command -v zsh >/dev/null; then
        completed=$(zsh -f -c 'fpath=("$1" $fpath); autoload -Uz compinit; compinit -u -D
            autoload +X _stroop; echo $_comps[stroop]' - "$share/zsh/vendor-completions")
        [ "$completed" = _stroop ] || fail "zsh has '$completed' for stroop"
    else
        gap "zsh is missing: its completion was not loaded"
    fi
    if command -v fish >/dev/null; then
        fish --no-execute "$share/fish/vendor_completions.d/stroop.fish" || fail "fish refuses it"
    else
        gap "fish is missing: its completion was not loaded"
    fi
}

try_unit() {
    command -v systemd-analyze >/dev/null || { gap "systemd-analyze is missing: the unit was not looked at"; return; }
    # In tenths: below 4.
    systemd-analyze security --offline=true --threshold=39 --no-pager "$unit" >"$work/security" ||
        fail "the unit is exposed: $(tail -n 1 "$work/security")"
    tail -n 1 "$work/security"
    local found
    mkdir "$work/unit"
    sed "s|^ExecStart=|&$root|" "$unit" >"$work/unit/stroop.service"
    found=$(systemd-analyze verify --man=no "$work/unit/stroop.service" 2>&1 | grep -F stroop || true)
    [ -z "$found" ] || fail "systemd says of the unit: $found"
}

try_lintian() {
    command -v lintian >/dev/null || { gap "lintian is missing: the package was not checked by it"; return; }
    lintian --allow-root --fail-on error --tag-display-limit 0 "$package" || fail "lintian found errors"
}

unit=$root/usr/lib/systemd/system/stroop.service
say "a fresh root"
make_root
say "installing $(basename "$package")"
install_package
say "manual, completions, unit"
try_manual
try_completions
try_unit
say "the first steps of a user"
try_first_steps
say "upgrade and removal"
try_upgrade_and_removal
try_lintian
tell_gaps
say "passed"
