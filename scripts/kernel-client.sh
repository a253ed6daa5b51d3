#!/usr/bin/env bash
# Runs shell commands inside a real Linux kernel, so that a server on this machine meets the kernel's
# own NFS client without that client being loaded here.
#
#   scripts/kernel-client.sh 'mount -t nfs -o vers=3,nolock,proto=tcp,port=P,mountport=P,mountproto=tcp \
#       10.0.2.2:/home /mnt && ls -l /mnt'
#
# The kernel is Debian's, fetched once into a cache; QEMU emulates its machine in software, so neither
# KVM nor a privilege beyond root in a container is needed. Inside, the file tree is this machine's:
# read-only through 9p, with a layer in memory for what the guest writes. Programs that are installed
# here (mount.nfs, git, pjdfstest) run there. This machine's loopback is 10.0.2.2 in the guest.
#
# Prints what the commands print and exits with their status; 125 if the guest did not get to an end.
# Times measured inside are those of an emulation and mean nothing.
#
# Environment: GUEST_SECONDS (600), GUEST_MEMORY_MIB (1024), GUEST_CACHE (~/.cache/stroop-guest),
# GUEST_NETWORK and GUEST_MAC: QEMU's network, where the guest must be reached from outside; the
# commands give it its address then (scripts/nfs-locks.sh). GUEST_DESK: a directory that the guest
# has as /run/desk and may write to; without it, a private one.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

[ $# = 1 ] || {
    sed -n '2,19s/^# \{0,1\}//p' "$0"
    exit 2
}
cache=${GUEST_CACHE:-$HOME/.cache/stroop-guest}
# What the first steps of the guest need before it sees this machine's modules.
early_modules="virtio_pci virtio_net 9pnet_virtio 9p overlay"

fail() {
    printf 'kernel-client: %s\n' "$*" >&2
    exit 125
}

install_tools() {
    local missing=() pair
    for pair in qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod mount.nfs:nfs-common; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    # The guest's first program must run without libraries.
    if ! [ -x /bin/busybox ] || ldd /bin/busybox >/dev/null 2>&1; then missing+=(busybox-static); fi
    [ ${#missing[@]} -gt 0 ] || return 0
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
        >/dev/null 2>&1 || fail "cannot install ${missing[*]}"
}

# Debian's newest kernel, unpacked but not installed.
fetch_kernel() {
    [ -s "$cache/kernel/image" ] && return
    local package fresh=$cache/fresh
    rm -rf "$fresh" "$cache/kernel"
    mkdir -p "$fresh"
    apt-cache show linux-image-amd64 >/dev/null 2>&1 || apt-get update -qq >/dev/null 2>&1 || true
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -n 1)
    [ -n "$package" ] || fail "Debian's archive names no kernel"
    (cd "$fresh" && apt-get -o APT::Sandbox::User=root download -qq "$package" >/dev/null) ||
        fail "cannot fetch $package"
    dpkg -x "$fresh/$package"_*.deb "$fresh"
    local version
    version=$(ls "$fresh/lib/modules")
    depmod -b "$fresh" "$version"
    cp "$fresh/boot/vmlinuz-$version" "$fresh/image"
    echo "$version" >"$fresh/version"
    rm -f "$fresh"/*.deb
    mv "$fresh" "$cache/kernel"
}

# The guest's first program: drivers, network, this machine's tree under a layer, then the commands.
guest_init() {
    cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module"; done </modules/order 2>/dev/null
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
shared=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o "$shared,ro,cache=loose" tree /below
mount -t 9p -o "$shared,cache=none" desk /desk
mount -t tmpfs tmpfs /layer
mkdir /layer/upper /layer/scratch
mount -t overlay -o lowerdir=/below,upperdir=/layer/upper,workdir=/layer/scratch overlay /root
for place in tmp run; do mkdir -p /root/$place; mount -t tmpfs tmpfs /root/$place; done
for place in proc sys dev; do mount --bind /$place /root/$place; done
mkdir -p /root/dev/pts /root/dev/shm /root/lib/modules /root/run/desk
mount -t devpts devpts /root/dev/pts
mount -t tmpfs tmpfs /root/dev/shm
mount --bind "/below$(cat /desk/modules)" /root/lib/modules
mount --bind /desk /root/run/desk
chroot /root /bin/sh /run/desk/start
sync
poweroff -f
INIT
}

make_first_file_system() {
    [ -s "$cache/first.gz" ] && return
    local tree version module
    version=$(cat "$cache/kernel/version")
    tree=$(mktemp -d)
    mkdir -p "$tree"/{bin,sbin,modules,proc,sys,dev,below,desk,layer,root}
    cp /bin/busybox "$tree/bin/busybox"
    for module in $early_modules; do
        modprobe --dirname "$cache/kernel" --set-version "$version" --show-depends "$module" 2>/dev/null || true
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!known[$0]++' |
        while read -r module; do
            cp "$module" "$tree/modules/"
            basename "$module" >>"$tree/modules/order"
        done
    guest_init >"$tree/init"
    # The kernel asks for file systems by this name, from outside of the tree that programs see.
    printf '%s\n' '#!/bin/sh' 'exec chroot /root /sbin/modprobe "$@"' >"$tree/sbin/modprobe"
    chmod +x "$tree/init" "$tree/sbin/modprobe"
    (cd "$tree" && find . | cpio --quiet -o -H newc | gzip -1) >"$cache/first.gz.new"
    mv "$cache/first.gz.new" "$cache/first.gz"
    rm -rf "$tree"
}

# What passes between guest and us: the commands in, their output and status out.
lay_desk() {
    desk=${GUEST_DESK:-}
    if [ -z "$desk" ]; then
        desk=$(mktemp -d)
        trap 'rm -rf "$desk"' EXIT
    fi
    printf '%s\n' "$1" >"$desk/commands"
    printf '%s\n' "$cache/kernel/lib/modules" >"$desk/modules"
    # Two guests at one server must not have one name.
    cat >"$desk/start" <<START
hostname guest$$
cd /
env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH="$HOME/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \\
    bash /run/desk/commands >/run/desk/output 2>&1 </dev/null
echo \$? >/run/desk/status
START
}

run_guest() {
    timeout --kill-after=5 "${GUEST_SECONDS:-600}" qemu-system-x86_64 \
        -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m "${GUEST_MEMORY_MIB:-1024}" \
        -nodefaults -no-user-config -no-reboot -display none -serial "file:$desk/console" \
        -kernel "$cache/kernel/image" -initrd "$cache/first.gz" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on" \
        -netdev "${GUEST_NETWORK:-user},id=net" \
        -device "virtio-net-pci,netdev=net,romfile=,mac=${GUEST_MAC:-52:54:00:12:34:56}" \
        -fsdev local,id=tree,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=tree,mount_tag=tree \
        -fsdev "local,id=desk,path=$desk,security_model=none" \
        -device virtio-9p-pci,fsdev=desk,mount_tag=desk \
        </dev/null >"$desk/qemu" 2>&1 || true
}

mkdir -p "$cache"
cache=$(readlink -f "$cache")
install_tools
fetch_kernel
make_first_file_system
lay_desk "$1"
run_guest
if [ -f "$desk/output" ]; then cat "$desk/output"; fi
if ! [ -s "$desk/status" ]; then
    cat "$desk/qemu" >&2
    tail -c 2000 "$desk/console" >&2 || true
    fail "the guest did not get to an end; its console is above"
fi
exit "$(cat "$desk/status")"
