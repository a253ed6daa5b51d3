#!/usr/bin/env bash
# Locks of two Linux kernels over NFS beside programs on a FUSE mount, with restarts of the server
# and of a client: NLM, NSM, rpcbind, the grace period and the lock manager that all share.
#
#   scripts/nfs-locks.sh BINARY DIRECTORY
#
# Everything runs in network and mount namespaces of its own: a bridge with the server (10.9.0.1,
# port 2049, a real rpcbind) and two guests of scripts/kernel-client.sh (10.9.0.2 and .3), each
# with its rpcbind and rpc.statd, mounting with nothing but vers=3. Guests and this script wait for
# each other by files on the volume. Prints what was shown, ends with 0 if all was, with 77 if it
# cannot run here.
#
# Needs root, /dev/fuse, /dev/net/tun, rpcbind, rpc.statd (nfs-common), ip (iproute2), perl, flock.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C.UTF-8

root=$(cd "$(dirname "$0")/.." && pwd)
# How long anybody waits for anybody: guests are emulated, and the machine may be busy.
patience_s=${PATIENCE:-400}
# Shorter than the usual 90 s; long enough for an emulated client to come back.
grace=${GRACE:-40s}
server= rpcbind= first= second=

note() { printf 'nfs-locks: %s\n' "$*"; }
fail() {
    note "FAILED: $*"
    exit 1
}
stroop() { "$binary" --config "$directory/stroop.toml" "$@"; }
say() { touch "$mountpoint/steps/$1"; }
await() {
    local deadline=$((SECONDS + patience_s))
    until [ -e "$mountpoint/steps/$1" ]; do
        if ls "$mountpoint"/steps/failed-* >/dev/null 2>&1; then fail "$(cat "$mountpoint"/steps/failed-*)"; fi
        [ $SECONDS -lt $deadline ] || fail "$1 did not come"
        sleep 0.1
    done
}

for tool in rpcbind rpc.statd sm-notify ip perl flock unshare pkill; do
    command -v "$tool" >/dev/null || { note "$tool is not installed"; exit 77; }
done
[ "$(id -u)" = 0 ] || { note "needs root"; exit 77; }
[ -w /dev/net/tun ] && [ -w /dev/fuse ] || { note "/dev/net/tun or /dev/fuse cannot be used"; exit 77; }
if [ "${1:-}" != --inside ]; then
    [ $# = 2 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
    "$root/scripts/kernel-client.sh" true || { note "the guest does not start"; exit 77; }
    exec unshare --mount --net --propagation private -- "$0" --inside "$@"
fi
binary=$(readlink -f "$2") directory=$3/locks
mkdir -p "$directory/mnt"
mountpoint=$directory/mnt

clean_up() {
    local status=$?
    trap - EXIT
    for session in $first $second; do pkill -KILL -s "$session" || true; done
    for process in $server $rpcbind; do kill -KILL "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    umount -l "$mountpoint" 2>/dev/null || true
    # Below its mount the directory is immutable.
    chattr -i "$mountpoint" 2>/dev/null || true
    if [ "$status" != 0 ]; then tail -n 25 "$directory"/*.out "$directory/server.log" >&2 || true; fi
    exit "$status"
}
trap clean_up EXIT

# ---- the network, rpcbind and the server ---------------------------------------------------------

ip link set lo up
ip link add bridge type bridge
ip addr add 10.9.0.1/24 dev bridge
ip link set bridge up
for number in 2 3; do
    ip tuntap add "tap$number" mode tap
    ip link set "tap$number" master bridge up
done
mount -t tmpfs tmpfs /run
mkdir -p /run/rpcbind
rpcbind -f &
rpcbind=$!
until [ -S /run/rpcbind.sock ]; do sleep 0.1; done

stroop init --state-dir "$directory/state" --dev-disks 4x512M --name server --memory 256M \
    --journal-size 64M --nfs 10.9.0.1:2049 >/dev/null
printf '[nfs]\ngrace = "%s"\n' "$grace" >>"$directory/stroop.toml"

start_server() {
    "$binary" --config "$directory/stroop.toml" serve --rpcbind --log info,nfs=debug \
        >>"$directory/server.log" 2>&1 </dev/null &
    server=$!
    local deadline=$((SECONDS + patience_s))
    until stroop status >/dev/null 2>&1; do
        kill -0 "$server" 2>/dev/null || fail "the server does not start"
        [ $SECONDS -lt $deadline ] || fail "the server does not answer"
        sleep 0.1
    done
}
start_server
stroop aggr create a1 --disks 4 --raid raid4 >/dev/null
stroop volume create home --aggr a1 --size 500M --export 10.9.0.0/24:rw:none >/dev/null
stroop mount home "$mountpoint" >/dev/null
registered=$(rpcinfo -p 127.0.0.1 | awk '{ print $1 "/" $2 "/" $3 "/" $4 }')
for wanted in 100003/3/tcp/2049 100005/3/tcp/2049 100021/4/tcp/2049 100024/1/udp/2049; do
    grep -qx "$wanted" <<<"$registered" || fail "$wanted is not registered: $registered"
done
! grep -qx 100021/4/udp/2049 <<<"$registered" || fail "locks are registered over UDP: $registered"
showmount -e 10.9.0.1 | grep -q '^/home *10.9.0.0/24$' || fail "showmount does not show the export"
note "registered at rpcbind; showmount shows the export"
# ---- the guests ----------------------------------------------------------------------------------

mkdir "$mountpoint/steps"
touch "$mountpoint/file" "$mountpoint/other"
# Takes a range, says so, and holds it until a step comes: FILE START LENGTH SAY UNTIL [now].
cat >"$mountpoint/range.pl" <<'PERL'
use Fcntl;
my ($name, $start, $length, $said, $until, $now) = @ARGV;
open(my $file, '+<', $name) or die "open: $!";
my $lock = pack('s s x4 q q i x4', F_WRLCK, SEEK_SET, $start, $length, 0);
fcntl($file, $now ? F_SETLK : F_SETLKW, $lock) or do { print "refused: $!\n"; exit 1 };
if ($said) { open(my $step, '>', "steps/$said") or die "say: $!"; close $step; }
until (!$until || -e "steps/$until") { select(undef, undef, undef, 0.2); }
PERL

# A guest's beginning: NUMBER [WHAT IT DOES BEFORE ITS STATUS MONITOR STARTS].
beginning() {
    cat <<GUEST
exec 2>&1
set -eE
trap 'echo "client$1, line \$LINENO: \$BASH_COMMAND" >/tmp/t/steps/failed-$1' ERR
say() { touch "/tmp/t/steps/\$1"; }
await() { until [ -e "/tmp/t/steps/\$1" ]; do sleep 0.2; done; }
refused() { if "\$@"; then echo "client$1: \$* was not refused" >/tmp/t/steps/failed-$1; exit 1; fi; }
ip addr flush dev eth0; ip addr add 10.9.0.$1/24 dev eth0; hostname client$1
mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak
rpcbind
${2:-}
rpc.statd --no-notify
mkdir -p /tmp/t
mount -t nfs -o vers=3,actimeo=0,lookupcache=none 10.9.0.1:/home /tmp/t
cd /tmp/t
GUEST
}
guest() {
    GUEST_SECONDS=3000 GUEST_MEMORY_MIB=512 GUEST_NETWORK="tap,ifname=tap$1,script=no,downscript=no" \
        GUEST_MAC="52:54:00:09:00:0$1" TMPDIR=$directory setsid "$root/scripts/kernel-client.sh" "$2" \
        >"$directory/client$1.out" 2>&1 &
}

guest 2 "$(beginning 2)
exec 9>>file; flock -x 9; say a-holds
await release; flock -u 9; say a-released
await fuse-holds; refused flock -n file true; say a-refused
perl range.pl other 100 100 a-range never &
await a-range; mkdir statd; cp /var/lib/nfs/sm/* statd; cp /var/lib/nfs/state state; say a-ready
await never"
first=$!
guest 3 "$(beginning 3)
await a-holds; refused flock -n file true; say b-refused
( flock 8; say b-got ) 8>>file &
sleep 1; say b-waits
await a-ready
perl range.pl other 200 100 b-range server-was-killed &
await b-range; refused perl range.pl other 150 10 '' '' now; say b-range-refused
await server-is-back
perl range.pl other 300 10 b-after-grace never-too &
await b-after-grace
refused perl range.pl other 150 10 '' '' now; say b-still-refused
perl range.pl other 150 10 b-freed done &
sleep 1; say b-waits-again
await b-freed; say b-ends; await done"
second=$!

# ---- what they show ------------------------------------------------------------------------------

await b-refused
if flock -n "$mountpoint/file" true; then fail "a program on the mount got what client2 holds"; fi
note "a lock of one client excludes the other and a program on the mount"
await b-waits
sleep 1
began=$SECONDS
say release
await b-got
waited=$((SECONDS - began))
# A client that is not called asks again after 30 s.
[ $waited -lt 20 ] || fail "the waiting client was served after $waited s: was it called?"
note "who waited was called when the lock was free, within $waited s"
await a-released
exec 7>>"$mountpoint/file"
flock -x 7
say fuse-holds
await a-refused
exec 7>&-
note "a lock of a program on the mount excludes a client"
await b-range-refused
note "ranges exclude where they meet"

note "SIGKILL to the server while client2 holds a range"
kill -KILL "$server"
wait "$server" 2>/dev/null || true
# The start makes the mount again.
start_server
say server-was-killed
say server-is-back
await b-still-refused
grep -q 'clients may take back their locks' "$directory/server.log" || fail "there was no grace period"
note "client2 took its lock back, client3 got a new one after the grace period and not that one"

note "client2 is killed and starts anew"
await b-waits-again
# All of its session: QEMU has a process group of its own.
pkill -KILL -s "$first"
wait "$first" 2>/dev/null || true
first=
[ ! -e "$mountpoint/steps/b-freed" ] || fail "the lock went before its client was back"
# Its disk is new: what a disk keeps comes from the share. The number of the status monitor goes up.
kept="mkdir -p /tmp/kept; mount -t nfs -o vers=3,nolock 10.9.0.1:/home /tmp/kept
cp /tmp/kept/statd/* /var/lib/nfs/sm/; chown -R --reference=/var/lib/nfs /var/lib/nfs/sm
perl -e 'print pack(\"l\", 2 + unpack(\"l\", <>))' </tmp/kept/state >/var/lib/nfs/state; umount /tmp/kept"
guest 2 "$(beginning 2 "$kept")
sm-notify -f -n -d & await done"
first=$!
await b-ends
note "its notice of the restart freed its lock for client3"
say done
wait "$second" || fail "client3 ended badly"
wait "$first" || fail "client2 ended badly"
first= second=
kill -TERM "$server"
wait "$server" || fail "the server ended badly"
server=
if rpcinfo -p 127.0.0.1 | grep -q 100021; then fail "still registered after the end"; fi
if grep -aE 'ERROR|panicked' "$directory/server.log" >&2; then fail "the server's log has errors"; fi
note "the server took itself out of rpcbind; its log has no errors"
