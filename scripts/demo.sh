#!/usr/bin/env bash
# The demo: one node on file-backed disks under ./demo, with a volume over NFS and FUSE.
#
#   scripts/demo.sh start   make what is missing, start the server, use it, say what to type next
#   scripts/demo.sh stop    stop the server cleanly; everything stays
#   scripts/demo.sh clean   stop it and remove ./demo
#
# Run again, start goes on from what is there. Environment: DEMO_DIRECTORY (./demo), DEMO_DISKS
# (4x1G), DEMO_NFS_PORT (12049, or the next that is free), DEMO_BUILD=no to take the binary that is
# there.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
directory=${DEMO_DIRECTORY:-$root/demo}
target=${CARGO_TARGET_DIR:-$root/target}
binary=$target/release/stroop
config=$directory/stroop.toml
mountpoint=$directory/mnt
volume=home
aggregate=a1
# How long to wait for the server: a replay of the log takes seconds.
patience_s=60

say() { printf '\n== %s\n' "$*"; }
fail() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}
stroop() { "$binary" --config "$config" "$@"; }
# Runs a command of ours and shows it as a person would type it.
show() {
    printf '$ stroop %s\n' "$*"
    stroop "$@"
}
answers() { [ -x "$binary" ] && [ -f "$config" ] && stroop status >/dev/null 2>&1; }

# The process of our server, if it runs: the lock file holds its number, and its program is ours.
server_process() {
    local number
    number=$(cat "$directory/state/stroop.lock" 2>/dev/null) || return 1
    case $number in '' | *[!0-9]*) return 1 ;; esac
    [ "$(readlink "/proc/$number/exe" 2>/dev/null | sed 's/ (deleted)$//')" = "$binary" ] || return 1
    echo "$number"
}

free_port() {
    local port=${DEMO_NFS_PORT:-12049}
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
    echo "$port"
}

nfs_port() { sed -n 's/^nfs = "127\.0\.0\.1:\([0-9]*\)".*/\1/p' "$config"; }

build() {
    [ "${DEMO_BUILD:-yes}" = no ] && return
    say "building the release binary"
    (cd "$root" && cargo build --release --package server)
}

initialise() {
    [ -f "$config" ] && return
    say "writing a configuration and ${DEMO_DISKS:-4x1G} sparse disks"
    mkdir -p "$directory"
    "$binary" --config "$config" init --state-dir "$directory/state" \
        --dev-disks "${DEMO_DISKS:-4x1G}" --nfs "127.0.0.1:$(free_port)" --name demo
}

start_server() {
    if answers; then
        say "the server is running"
        return
    fi
    say "starting the server (log: $directory/server.log)"
    setsid nohup "$binary" --config "$config" serve >>"$directory/server.log" 2>&1 </dev/null &
    local started=$! deadline=$((SECONDS + patience_s))
    until answers; do
        if ! kill -0 "$started" 2>/dev/null && ! server_process >/dev/null; then
            tail -n 20 "$directory/server.log" >&2
            fail "the server ended; its log is above"
        fi
        [ $SECONDS -lt $deadline ] || fail "no answer from the server in $patience_s s; see its log"
        sleep 0.1
    done
}

create_objects() {
    if ! stroop aggr list -o name | grep -qx "$aggregate"; then
        say "pooling the disks into an aggregate"
        show aggr create "$aggregate" --disks 4 --raid raid4
    fi
    if ! stroop volume list -o name | grep -qx "$volume"; then
        say "making a volume, exported to this machine"
        # Who is not root cannot call from a port below 1024, which is asked for by default.
        local rule=127.0.0.1:rw:insecure
        # Root is squashed by default, and then whoever runs this as root could not write by NFS.
        [ "$(id -u)" = 0 ] && rule=127.0.0.1:rw:none:insecure
        show volume create "$volume" --aggr "$aggregate" --size 2G --owner "$(id -u):$(id -g)" \
            --export "$rule"
    fi
}

mount_volume() {
    mounted=no
    # The start makes the mount again, if it was there before.
    if mountpoint -q "$mountpoint" 2>/dev/null; then
        mounted=yes
        return
    fi
    if ! { [ -c /dev/fuse ] && [ -r /dev/fuse ] && [ -w /dev/fuse ]; }; then
        say "/dev/fuse cannot be used here, so the volume is not mounted"
        return
    fi
    say "mounting it with FUSE"
    mkdir -p "$mountpoint"
    show mount "$volume" "$mountpoint" && mounted=yes
}

# The tree to copy: this repository's sources that are here.
source_files() {
    cd "$root"
    { git ls-files -z 2>/dev/null || find Cargo.toml README.md crates scripts -type f -print0; } |
        while IFS= read -r -d '' file; do
            if [ -f "$file" ]; then printf '%s\0' "$file"; fi
        done
}

copy_tree() {
    if [ "$mounted" = yes ]; then
        say "copying this repository's sources in, and comparing"
        mkdir -p "$mountpoint/sources"
        source_files | tar -C "$root" --null -T - -cf - | tar -xf - -C "$mountpoint/sources"
        # The system's sync does nothing on a FUSE mount.
        show sync "$volume"
        local differing=0 compared=0
        while IFS= read -r -d '' file; do
            compared=$((compared + 1))
            cmp -s "$root/$file" "$mountpoint/sources/$file" || differing=$((differing + 1))
        done < <(source_files)
        echo "$compared files compared, $differing differ"
        [ "$differing" = 0 ] || fail "the copy is not the same as the original"
    elif command -v nfs-cp >/dev/null; then
        say "copying a file in over NFS"
        nfs-cp "$root/README.md" "nfs://127.0.0.1/$volume/README.md?$nfs_options"
    fi
}

use_nfs() {
    nfs_options="nfsport=$(nfs_port)&mountport=$(nfs_port)"
    command -v nfs-ls >/dev/null || return 0
    say "listing it over NFS"
    printf '$ nfs-ls "nfs://127.0.0.1/%s?%s"\n' "$volume" "$nfs_options"
    nfs-ls "nfs://127.0.0.1/$volume?$nfs_options"
}

what_next() {
    local port
    port=$(nfs_port)
    say "what to type next"
    local typed=$binary
    case $typed in "$PWD"/*) typed=./${typed#"$PWD"/} ;; esac
    cat <<TEXT
  alias stroop='$typed --config $config'
  stroop volume show $volume
  stroop snapshot list $volume
TEXT
    if [ "$mounted" = yes ]; then
        cat <<TEXT
  ls $mountpoint/sources
  ls $mountpoint/.snapshot/$snapshot
  rm -r $mountpoint/sources && cp -r $mountpoint/.snapshot/$snapshot/sources $mountpoint/
TEXT
    fi
    cat <<TEXT
  nfs-ls "nfs://127.0.0.1/$volume?nfsport=$port&mountport=$port"
  sudo mount -t nfs -o vers=3,nolock,tcp,port=$port,mountport=$port 127.0.0.1:/$volume /mnt
  make demo-stop      stops the server; make demo starts it again with everything there
  make demo-clean     removes the demo
TEXT
}

start() {
    build
    [ -x "$binary" ] || fail "there is no $binary"
    initialise
    start_server
    create_objects
    mount_volume
    nfs_options="nfsport=$(nfs_port)&mountport=$(nfs_port)"
    copy_tree
    use_nfs
    say "taking a snapshot"
    snapshot=$(date +%Y%m%d-%H%M%S)
    show snapshot create "$volume@$snapshot"
    say "the node"
    show status
    show volume list
    what_next
}

stop() {
    local number
    if ! number=$(server_process); then
        echo "demo: the server is not running"
        return
    fi
    # The socket is the polite way; the signal does the same if the socket is gone.
    stroop shutdown 2>/dev/null || kill -TERM "$number"
    local deadline=$((SECONDS + patience_s))
    while server_process >/dev/null; do
        [ $SECONDS -lt $deadline ] || fail "process $number has not stopped in $patience_s s"
        sleep 0.1
    done
    echo "demo: stopped"
}

clean() {
    # Gives the directory back, which is immutable while nothing is mounted on it.
    stroop unmount "$mountpoint" >/dev/null 2>&1 || chattr -i "$mountpoint" 2>/dev/null || true
    stop
    [ -f "$config" ] || {
        echo "demo: nothing to remove"
        return
    }
    rm -rf "$directory/state" "$directory/server.log" "$config"
    rmdir "$mountpoint" 2>/dev/null || true
    rmdir "$directory" 2>/dev/null || true
    echo "demo: removed"
}

case ${1:-} in
start) start ;;
stop) stop ;;
clean) clean ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
