#!/usr/bin/env bash
# Acceptance: real programs on the real binary. Each item prints PASS, FAIL or SKIP with figures.
#
#   scripts/acceptance.sh all            every item below, in this order
#   scripts/acceptance.sh ITEM...        git make sqlite pjdfstest fsx nfs-copy kernel-client locks kill
#
# An item works on a server of its own kind: one for all items that are named, on four sparse disks
# with parity, in a private directory, on a free loopback port. After each item the server must still
# answer and its log must hold no error; in the end it is stopped, and nothing of it is left.
#
# Environment: ACCEPTANCE_DIRECTORY (a new one below ${TMPDIR:-/tmp}), STROOP (the binary; without it
# the release binary is built), KEEP=yes keeps the directory, and the sizes: DISKS (4x4G), VOLUME (8G),
# MEMORY (512M), GIT_OBJECTS (20000), NFS_FILES (10000), FSX_OPERATIONS (100000), KILL_ROUNDS (100),
# SQLITE_TRANSACTIONS (400).
#
# Needs /dev/fuse and root; git, make, cc, sqlite3, nfs-cp (libnfs-utils); pjdfstest and fsx
# (cargo install); qemu for kernel-client. What is missing makes its item say SKIP, and why.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
items_known="git make sqlite pjdfstest fsx nfs-copy kernel-client locks kill"
# How long to wait for the server to answer after a start, and to end after a stop.
patience_s=120
# What an item returns that cannot be run here.
skipped=77
failures=0
server=
export PATH=$HOME/.cargo/bin:$PATH LC_ALL=C.UTF-8

note() { printf '   %s\n' "$*" >&2; }
report() { printf '%s %s: %s\n' "$1" "$2" "$3"; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f s", b - a }'; }
has() { command -v "$1" >/dev/null; }
stroop() { "$binary" --config "$directory/stroop.toml" "$@"; }

free_port() {
    local port=$((20000 + RANDOM % 20000))
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
    echo "$port"
}

# The binary, the private directory and what ends both.
prepare() {
    binary=${STROOP:-}
    if [ -z "$binary" ]; then
        (cd "$root" && cargo build --quiet --release --package server)
        binary=${CARGO_TARGET_DIR:-$root/target}/release/stroop
    fi
    directory=${ACCEPTANCE_DIRECTORY:-$(mktemp -d "${TMPDIR:-/tmp}/stroop-acceptance.XXXXXX")}
    mkdir -p "$directory/mnt" "$directory/work"
    directory=$(readlink -f "$directory")
    mountpoint=$directory/mnt
    work=$directory/work
    trap clean_up EXIT
}

clean_up() {
    local status=$?
    trap - EXIT
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    if grep -q " $mountpoint " /proc/self/mounts; then umount -l "$mountpoint" || true; fi
    # Below its mount the directory is immutable.
    chattr -i "$mountpoint" 2>/dev/null || true
    if [ "${KEEP:-no}" = yes ]; then note "kept: $directory"; else rm -rf "$directory"; fi
    exit "$status"
}

answers() { stroop status >/dev/null 2>&1; }

start_server() {
    [ -z "$server" ] || return 0
    port=$(free_port)
    stroop init --state-dir "$directory/state" --dev-disks "${DISKS:-4x4G}" --name acceptance \
        --memory "${MEMORY:-512M}" --nfs "127.0.0.1:$port" >"$work/init.out"
    RUST_BACKTRACE=1 "$binary" --config "$directory/stroop.toml" serve \
        >"$directory/server.log" 2>&1 </dev/null &
    server=$!
    local deadline=$((SECONDS + patience_s))
    until answers; do
        kill -0 "$server" 2>/dev/null || { tail -n 30 "$directory/server.log" >&2; return 1; }
        [ $SECONDS -lt $deadline ] || { note "the server does not answer"; return 1; }
        sleep 0.1
    done
    stroop aggr create a1 --disks 4 --raid raid4 >&2
    stroop volume create home --aggr a1 --size "${VOLUME:-8G}" --export 127.0.0.1:rw:none:insecure >&2
    if [ -w /dev/fuse ]; then stroop mount home "$mountpoint" >&2; fi
}

# What the server says of itself after an item.
check_server() {
    if ! kill -0 "$server" 2>/dev/null; then
        note "the server died; its log ends:"
        tail -n 40 "$directory/server.log" >&2
        return 1
    fi
    answers || { note "the server does not answer"; return 1; }
    if grep -aE 'ERROR|panicked' "$directory/server.log" >&2; then return 1; fi
}

# A clean stop: the last consistency point must succeed.
stop_server() {
    [ -n "$server" ] || return 0
    local status=0 began
    began=$(now)
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || status=$?
    server=
    if [ "$status" = 0 ]; then
        report PASS stop "SIGTERM ended the server in $(since "$began")"
    else
        tail -n 30 "$directory/server.log" >&2
        report FAIL stop "the server ended with status $status"
        return 1
    fi
}

need_mount() {
    grep -q " $mountpoint " /proc/self/mounts || { why="/dev/fuse cannot be used here"; return 1; }
}
need() {
    local tool
    for tool in "$@"; do has "$tool" || { why="$tool is not installed"; return 1; }; done
}

# ---- git: clone 20,000 objects or more and check all of them ------------------------------------

# A stream for git fast-import: commits of many small files, each commit changing part of them.
git_stream() {
    awk -v wanted="$1" 'BEGIN {
        srand(7); objects = 0
        for (commit = 1; objects < wanted; commit++) {
            printf "commit refs/heads/main\ncommitter A <a@example.org> %d +0000\n", 1600000000 + commit
            message = "commit " commit
            printf "data %d\n%s\n", length(message), message
            for (file = 0; file < 100; file++) {
                text = ""
                lines = 1 + int(rand() * 40)
                for (line = 0; line < lines; line++) text = text commit " " file " " line " " rand() "\n"
                at = int(rand() * 5000)
                printf "M 100644 inline d%d/e%d/f%d.txt\n", at % 20, at % 7, at
                printf "data %d\n%s\n", length(text), text
            }
            objects += 100 + 60
            print ""
        }
    }'
}

item_git() {
    need git && need_mount || return "$skipped"
    local source=$work/source.git began objects
    if [ ! -d "$source" ]; then
        git init --quiet --bare --initial-branch=main "$source"
        git_stream "${GIT_OBJECTS:-20000}" | git -C "$source" fast-import --quiet
    fi
    objects=$(git -C "$source" rev-list --objects --all | wc -l)
    began=$(now)
    git clone --quiet --no-local "$source" "$mountpoint/clone"
    figures="$objects objects cloned in $(since "$began")"
    began=$(now)
    git -C "$mountpoint/clone" fsck --full --strict --no-progress >&2
    figures+=", fsck --full in $(since "$began")"
    began=$(now)
    git -C "$mountpoint/clone" status --porcelain >"$work/status.out"
    [ ! -s "$work/status.out" ] || { note "the clone's tree differs"; return 1; }
    # Loose objects, one file each, are the other half of git's work.
    began=$(now)
    git init --quiet --bare --initial-branch=main "$mountpoint/loose.git"
    git -C "$mountpoint/loose.git" unpack-objects -q <"$(ls "$source"/objects/pack/*.pack | head -1)"
    git -C "$mountpoint/loose.git" fsck --full --no-progress --no-dangling >"$work/fsck.out" 2>&1
    local loose
    loose=$(find "$mountpoint/loose.git/objects" -type f | wc -l)
    figures+="; $loose loose objects written and checked in $(since "$began")"
    [ "$objects" -ge "${GIT_OBJECTS:-20000}" ] || { note "only $objects objects"; return 1; }
    rm -rf "$mountpoint/clone" "$mountpoint/loose.git"
}

# ---- make: build a C program of 120 files on the mount ------------------------------------------

c_program() {
    local place=$1 number
    mkdir -p "$place"
    for number in $(seq 0 119); do
        cat >"$place/part$number.c" <<C
#include "parts.h"
#include <stdio.h>
#include <string.h>
static int table_$number[64];
int part_$number(int value) {
    char text[64];
    for (int at = 0; at < 64; at++) table_$number[at] = at * $number + value;
    snprintf(text, sizeof text, "%d", table_$number[$number % 64]);
    return (int)strlen(text) + $number;
}
C
    done
    {
        for number in $(seq 0 119); do echo "int part_$number(int value);"; done
    } >"$place/parts.h"
    {
        echo '#include "parts.h"'
        echo '#include <stdio.h>'
        echo 'int main(void) { long sum = 0;'
        for number in $(seq 0 119); do echo "sum += part_$number($number);"; done
        echo 'printf("%ld\n", sum); return 0; }'
    } >"$place/main.c"
    printf 'OBJECTS = main.o $(patsubst %%,part%%.o,$(shell seq 0 119))\nprogram: $(OBJECTS)\n\tcc -o $@ $(OBJECTS)\n%%.o: %%.c parts.h\n\tcc -O1 -c -o $@ $<\n' >"$place/Makefile"
}

item_make() {
    need make cc && need_mount || return "$skipped"
    c_program "$work/program"
    make -s --no-print-directory -C "$work/program" -j2
    cp -r "$work/program" "$mountpoint/program"
    rm -f "$mountpoint"/program/*.o "$mountpoint/program/program"
    local began expected found
    began=$(now)
    make -s --no-print-directory -C "$mountpoint/program" -j2
    expected=$("$work/program/program") found=$("$mountpoint/program/program")
    figures="121 C files built with make -j2 in $(since "$began"); the program printed $found"
    [ "$expected" = "$found" ] || { note "expected $expected"; return 1; }
    cmp "$work/program/program" "$mountpoint/program/program"
    # Nothing is out of date: times are in order.
    make -q --no-print-directory -C "$mountpoint/program"
    rm -rf "$mountpoint/program"
}

# ---- sqlite: many transactions in both journal modes, beside a reader --------------------------

# Transactions that keep a sum: money moves between accounts.
sqlite_transactions() {
    awk -v mode="$1" -v count="$2" 'BEGIN {
        srand(11)
        print ".timeout 20000\nPRAGMA journal_mode=" mode ";\nPRAGMA synchronous=FULL;"
        for (at = 0; at < count; at++) {
            from = int(rand() * 1000); to = int(rand() * 1000); sum = int(rand() * 50)
            print "BEGIN IMMEDIATE;"
            printf "UPDATE account SET sum = sum - %d WHERE id = %d;\n", sum, from
            printf "UPDATE account SET sum = sum + %d WHERE id = %d;\n", sum, to
            printf "INSERT INTO moved VALUES (%d, %d, %d, %d, hex(randomblob(200)));\n", at, from, to, sum
            print "COMMIT;"
        }
    }'
}

sqlite_mode() {
    local mode=$1 count=$2 base=$mountpoint/base-$1.db began
    rm -f "$base" "$base"-*
    sqlite3 "$base" "PRAGMA journal_mode=$mode; CREATE TABLE account (id INTEGER PRIMARY KEY, sum INTEGER);
        CREATE TABLE moved (at INTEGER, source INTEGER, target INTEGER, sum INTEGER, text TEXT);
        CREATE INDEX moved_text ON moved (text);
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
        INSERT INTO account SELECT i, 1000 FROM n;" >/dev/null
    began=$(now)
    sqlite_transactions "$mode" "$count" | sqlite3 -bail "$base" >/dev/null &
    local writer=$! reads=0 sum
    while kill -0 "$writer" 2>/dev/null; do
        sum=$(sqlite3 -readonly -cmd '.timeout 20000' "$base" 'SELECT sum(sum) FROM account')
        [ "$sum" = 1000000 ] || { note "$mode: a reader saw the sum $sum"; return 1; }
        reads=$((reads + 1))
    done
    wait "$writer"
    figures+="$mode: $count transactions in $(since "$began") beside $reads reads; "
    [ "$(sqlite3 "$base" 'PRAGMA integrity_check')" = ok ] || { note "$mode: integrity_check"; return 1; }
    [ "$(sqlite3 "$base" 'SELECT count(*) FROM moved')" = "$count" ] || { note "$mode: rows are missing"; return 1; }
    sqlite3 "$base" 'VACUUM; PRAGMA integrity_check' | grep -qx ok
    rm -f "$base" "$base"-*
}

item_sqlite() {
    need sqlite3 && need_mount || return "$skipped"
    figures=
    sqlite_mode WAL "${SQLITE_TRANSACTIONS:-400}"
    sqlite_mode DELETE "${SQLITE_TRANSACTIONS:-400}"
    figures+="integrity_check ok"
}

# ---- pjdfstest and fsx ---------------------------------------------------------------------------

pjdfstest_configuration() {
    cat <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
stat_st_birthtime = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [ ["nobody","nogroup"], ["games","games"] ]
TOML
}

item_pjdfstest() {
    need pjdfstest && need_mount || return "$skipped"
    [ "$(id -u)" = 0 ] || { why="pjdfstest needs root"; return "$skipped"; }
    pjdfstest_configuration >"$work/pjdfstest.toml"
    mkdir -p "$mountpoint/posix"
    chmod 755 "$directory" "$mountpoint" "$mountpoint/posix"
    local status=0 began
    began=$(now)
    pjdfstest -v -c "$work/pjdfstest.toml" -s "$work" -p "$mountpoint/posix" >"$work/pjdfstest.out" 2>&1 || status=$?
    figures="$(sed -n 's/^Summary: //p' "$work/pjdfstest.out") in $(since "$began")"
    # Each skip with its reason: the test's name, then what it is about, then why.
    awk '/ skipped$/ { name = $1; at = NR } NR == at + 2 && name { sub(/^[ \t]+/, ""); why[$0] = why[$0] " " name; name = "" }
        END { for (reason in why) print "   skipped:" why[reason] ": " reason }' "$work/pjdfstest.out" >&2
    rm -rf "$mountpoint/posix"
    [ "$status" = 0 ] || { tail -n 60 "$work/pjdfstest.out" >&2; return 1; }
}

item_fsx() {
    need fsx && need_mount || return "$skipped"
    local count=${FSX_OPERATIONS:-100000} seed=${FSX_SEED:-$RANDOM} began
    # Everything that Linux has for files, with mapped reads and writes, on a file of 1 MiB.
    cat >"$work/fsx.toml" <<'TOML'
flen = 1048576
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 5
sendfile = 1
TOML
    began=$(now)
    run_fsx "$seed" "$count" || return 1
    # The same with writes that the kernel keeps.
    local status=0
    remount_home --write-back
    run_fsx "$seed" "$count" || status=1
    remount_home
    [ "$status" = 0 ] || { note "with --write-back"; return 1; }
    figures="2 x $count operations with mmap, with and without write-back, seed $seed, in $(since "$began")"
}

# remount_home [OPTION]: mounts the volume anew.
remount_home() {
    stroop unmount "$mountpoint" >&2
    stroop mount home "$mountpoint" "$@" >&2
}

# run_fsx SEED COUNT
run_fsx() {
    fsx -q -f "$work/fsx.toml" -S "$1" -N "$2" -P "$work" "$mountpoint/fsx.file" >"$work/fsx.out" 2>&1 ||
        { tail -n 30 "$work/fsx.out" >&2; note "seed $1"; return 1; }
    rm -f "$mountpoint/fsx.file"
}

# ---- NFS -----------------------------------------------------------------------------------------

nfs_url() { echo "nfs://127.0.0.1/home/$1?version=3&nfsport=$port&mountport=$port"; }

item_nfs_copy() {
    need nfs-cp nfs-ls || return "$skipped"
    local count=${NFS_FILES:-10000} began number
    mkdir -p "$work/nfs-in" "$work/nfs-out"
    # Sizes from nothing to some hundred KiB, most of them small, no two files the same.
    awk -v count="$count" 'BEGIN { srand(3); for (at = 0; at < count; at++) {
        size = int(exp(rand() * 11)) - 1; if (at % 1000 == 0) size = 3000000 + at; print at, size } }' |
        while read -r number size; do
            # printf before the cut keeps equal sizes apart
            { printf '%s ' "$number"; tail -c "+$((number * 37 % 1000000 + 1))" "$binary"; } 2>/dev/null |
                head -c "$size" >"$work/nfs-in/f$number" || true
        done
    began=$(now)
    seq 0 $((count - 1)) | xargs -P 4 -I{} nfs-cp "$work/nfs-in/f{}" "$(nfs_url 'copy-{}')" >/dev/null
    figures="$count files in: $(since "$began")"
    began=$(now)
    seq 0 $((count - 1)) | xargs -P 4 -I{} nfs-cp "$(nfs_url 'copy-{}')" "$work/nfs-out/f{}" >/dev/null
    figures+=", out: $(since "$began")"
    diff -r "$work/nfs-in" "$work/nfs-out" >&2
    local listed
    listed=$(nfs-ls "$(nfs_url '')" | grep -c ' copy-')
    [ "$listed" = "$count" ] || { note "nfs-ls shows $listed files"; return 1; }
    figures+=", byte-identical, nfs-ls shows $listed"
    rm -rf "$work/nfs-in" "$work/nfs-out"
    if need_mount; then find "$mountpoint" -maxdepth 1 -name 'copy-*' -delete; fi
}

item_kernel_client() {
    [ "$(id -u)" = 0 ] || { why="the rig needs root"; return "$skipped"; }
    has qemu-system-x86_64 || has apt-get || { why="there is no qemu-system-x86_64"; return "$skipped"; }
    local status=0 began
    began=$(now)
    "$root/scripts/kernel-client.sh" "
set -e
options=vers=3,nolock,proto=tcp,mountproto=tcp,port=$port,mountport=$port
mkdir -p /tmp/t
mount -t nfs -o \$options 10.0.2.2:/home /tmp/t
cd /tmp/t; rm -rf kernel; mkdir kernel; cd kernel
seq 1 200000 >numbers; sha256sum numbers >sums
ln numbers linked; ln -s numbers symbolic; mv numbers renamed
mkdir deep; mv deep deeper; mknod pipe p; mkdir many
if command -v setfacl >/dev/null; then
    mkdir lists; setfacl -m d:u:1001:rwx lists; (umask 077; echo x >lists/f)
    [ \"\$(getfacl -cnE lists/f | tr '\\n' ' ')\" = 'user::rw- user:1001:rwx group::r-x mask::rw- other::r--  ' ]
fi
for n in \$(seq 1 300); do echo \$n >many/\$n; done
dd if=/dev/urandom of=big bs=1M count=24 conv=fsync 2>/dev/null; sha256sum big >>sums
[ \$(stat -c %h renamed) = 2 ]; cmp renamed linked
chmod 640 renamed; chown 12:34 renamed; touch -d @1234567890.987654321 renamed
echo held >open; exec 3<open; rm open; [ \"\$(cat <&3)\" = held ]; exec 3<&-
cd /; umount /tmp/t
mount -t nfs -o \$options 10.0.2.2:/home /tmp/t; cd /tmp/t/kernel
[ \"\$(stat -c '%a %u %g %.9Y' renamed)\" = '640 12 34 1234567890.987654321' ]
mv renamed numbers; sha256sum -c sums; mv numbers renamed
[ \$(ls many | wc -l) = 300 ]; [ \"\$(cat many/77)\" = 77 ]; [ ! -e open ]
[ ! -e symbolic ]; [ \"\$(readlink symbolic)\" = numbers ]; [ -p pipe ]; [ -d deeper ]
rm -rf many deeper; [ ! -e many ]; mkdir many; rmdir many
cd /; umount /tmp/t; echo kernel \$(uname -r) done
" >"$work/kernel.out" 2>&1 || status=$?
    [ "$status" = 0 ] || { cat "$work/kernel.out" >&2; return 1; }
    figures="$(tail -n 1 "$work/kernel.out"): mount, write, link, rename, read, remount, read, in $(since "$began")"
    if need_mount; then
        (cd "$mountpoint/kernel" && sha256sum big | cmp - <(grep ' big' sums))
        figures+="; the same over FUSE"
        rm -rf "$mountpoint/kernel"
    fi
}

# ---- locks: two kernels, a FUSE mount, restarts; on a server of its own in a network of its own -----

item_locks() {
    local status=0 began
    began=$(now)
    "$root/scripts/nfs-locks.sh" "$binary" "$work" >"$work/locks.out" 2>&1 || status=$?
    if [ "$status" = 77 ]; then why=$(tail -n 1 "$work/locks.out"); return "$skipped"; fi
    [ "$status" = 0 ] || { cat "$work/locks.out" >&2; return 1; }
    figures="$(grep -c '^nfs-locks: ' "$work/locks.out") things shown; $(grep 'who waited' "$work/locks.out" |
        sed 's/^nfs-locks: //'); in $(since "$began")"
}

# ---- kill ----------------------------------------------------------------------------------------

item_kill() {
    need_mount || return "$skipped"
    local rounds=${KILL_ROUNDS:-100} began guest=()
    if has qemu-system-x86_64; then guest=(--kernel-client "$root/scripts/kernel-client.sh"); fi
    began=$(now)
    (cd "$root" && cargo run --quiet --release --package torture --bin kill_loop -- \
        --server "$binary" --directory "$work" --rounds "$rounds" ${guest[@]+"${guest[@]}"}) >"$work/kill.out" 2>&1 ||
        { tail -n 60 "$work/kill.out" >&2; return 1; }
    figures="$(tail -n 1 "$work/kill.out") in $(since "$began")"
}

# ---- the run -------------------------------------------------------------------------------------

run_item() {
    local item=$1 status=0
    figures= why=
    # In a subshell with -e, so that any command that fails ends the item; figures come back by file.
    set +e
    (
        set -e
        trap 'printf "%s" "$figures" >"$work/figures"; printf "%s" "$why" >"$work/why"' EXIT
        "item_${item//-/_}"
        check_server
    )
    status=$?
    set -e
    figures=$(cat "$work/figures") why=$(cat "$work/why")
    case $status in
    0) report PASS "$item" "$figures" ;;
    "$skipped") report SKIP "$item" "$why" ;;
    *)
        report FAIL "$item" "${figures:-see above}"
        failures=$((failures + 1))
        ;;
    esac
}

case ${1:-} in
'' | -h | --help)
    sed -n '2,20s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
all) set -- $items_known ;;
esac
for item in "$@"; do
    case " $items_known " in *" $item "*) ;; *) note "no item $item; there are: $items_known"; exit 2 ;; esac
done
prepare
start_server
for item in "$@"; do run_item "$item"; done
stop_server || failures=$((failures + 1))
[ "$failures" = 0 ] || { echo "$failures items failed"; exit 1; }
echo "all items passed or were skipped as said"
