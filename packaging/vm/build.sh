#!/usr/bin/env bash
# Makes what a virtual machine with systemd and cgroup v2 takes, in .build/vm. As root, on Debian, once.
#
#   qemu/       an emulator of the next Debian, unpacked: the one of Debian 12 miscompiles guests
#   vmlinuz     Debian's cloud kernel
#   initrd      loads the disk's driver and hands over to systemd
#   root.ext4   a minimal Debian whose user `tester` has a user manager with delegated controllers
#
# The host's kernel often has cgroup v1 or a hybrid, and containers delegate nothing, so this is the only
# place where limits by cgroup v2 can be tested on every machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/packaging/vm
vm=$PWD/.build/vm
suite=${COWORK_VM_SUITE:-trixie}
umask 022

# What is made depends on these two files alone.
stamp=$(cat "$here/build.sh" "$here/job.sh" | sha256sum)
[ "$(cat "$vm/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

[ "$(id -u)" -eq 0 ] || {
    echo "The virtual machine is made as root, once: sudo make vm-test" >&2
    exit 1
}
packaging/need.sh mmdebstrap mke2fs=e2fsprogs xz=xz-utils cpio=cpio depmod=kmod busybox=busybox-static

# shellcheck disable=SC2016 # the words in brackets are apt's
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' |
        grep -v -e security -e '^$' | head -n 1
}
mirror=${COWORK_VM_MIRROR:-$(mirror)}
[ -n "$mirror" ] || {
    echo "This host's package tool knows no Debian mirror; name one with COWORK_VM_MIRROR" >&2
    exit 1
}

rm -rf --one-file-system "$vm"
mkdir -p "$vm/apt/state/lists/partial" "$vm/apt/cache/archives/partial" "$vm/qemu" "$vm/kernel"

# fetch PACKAGE...: the packages and all they need, as if nothing were installed.
fetch() {
    apt-get "${apt[@]}" -qq install --yes --download-only --no-install-recommends "$@"
}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror $suite main" >"$vm/apt/sources.list"
: >"$vm/apt/status"
apt=(-o "Dir::State=$vm/apt/state" -o "Dir::State::status=$vm/apt/status" -o "Dir::Cache=$vm/apt/cache"
    -o "Dir::Etc::sourcelist=$vm/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root)

echo "vm: fetching an emulator and a kernel" >&2
apt-get "${apt[@]}" -qq update
fetch qemu-system-x86 qemu-system-data seabios
for package in "$vm"/apt/cache/archives/*.deb; do
    dpkg -x "$package" "$vm/qemu"
done
rm -f "$vm"/apt/cache/archives/*.deb
(
    cd "$vm/apt/cache/archives"
    kernel=$(apt-cache "${apt[@]}" depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p' | head -n 1)
    apt-get "${apt[@]}" -qq download "$kernel"
)
dpkg -x "$vm"/apt/cache/archives/linux-image-*.deb "$vm/kernel"
cp "$vm"/kernel/boot/vmlinuz-* "$vm/vmlinuz"

# The initrd: a shell that is one file, and the drivers in the order in which they depend on each other.
modules=$(echo "$vm"/kernel/usr/lib/modules/* "$vm"/kernel/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -n 1)
version=${modules##*/}
mkdir -p "$vm/initrd.d/bin" "$vm/initrd.d/drivers" "$vm/initrd.d/dev" "$vm/initrd.d/proc" "$vm/initrd.d/root"
[ -e "$vm/kernel/lib" ] || ln -s usr/lib "$vm/kernel/lib"
depmod -b "$vm/kernel" "$version"
order=0
for driver in virtio_pci virtio_blk ext4; do
    modprobe -d "$vm/kernel" -S "$version" --show-depends "$driver" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' | while read -r file; do
    order=$((order + 1))
    name=$(printf '%02d-%s' "$order" "$(basename "${file%.xz}")")
    case $file in
        *.xz) xz -dc "$file" >"$vm/initrd.d/drivers/$name" ;;
        *) cp "$file" "$vm/initrd.d/drivers/$name" ;;
    esac
done
cp "$(command -v busybox)" "$vm/initrd.d/bin/busybox"
cat >"$vm/initrd.d/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
for driver in /drivers/*; do $b insmod "$driver"; done
n=0
until [ -b /dev/vda ]; do
    n=$((n + 1))
    [ "$n" -lt 600 ] || { echo "no disk" >/dev/console; $b poweroff -f; }
    $b usleep 100000
done
$b mount -t ext4 /dev/vda /root
$b umount /proc
exec $b switch_root /root /lib/systemd/systemd
INIT
chmod 755 "$vm/initrd.d/init"
(cd "$vm/initrd.d" && find . | cpio -o -H newc --quiet | gzip -1) >"$vm/initrd"

echo "vm: making a root file system" >&2
unshare -m --propagation private mmdebstrap --quiet --variant=minbase --mode=root --format=directory \
    --keyring="$keyring" --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,procps,util-linux,libseccomp2,python3 \
    "$suite" "$vm/root.d" "$mirror"
root=$vm/root.d
install -m 755 "$here/job.sh" "$root/usr/local/sbin/cowork-job"
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash tester
mkdir -p "$root/var/lib/systemd/linger" "$root/etc/systemd/system/user@.service.d" \
    "$root/etc/systemd/system/multi-user.target.wants"
: >"$root/var/lib/systemd/linger/tester"
printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >"$root/etc/systemd/system/user@.service.d/delegate.conf"
cat >"$root/etc/systemd/system/cowork-job.service" <<'UNIT'
[Unit]
After=systemd-user-sessions.service systemd-logind.service user@1000.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/cowork-job
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
UNIT
ln -s ../cowork-job.service "$root/etc/systemd/system/multi-user.target.wants/cowork-job.service"
# Nothing of these is needed, and every one costs seconds under emulation.
for unit in getty.target serial-getty@ttyS0.service systemd-journal-flush.service systemd-journal-catalog-update.service \
    systemd-tpm2-setup.service systemd-tpm2-setup-early.service systemd-update-utmp.service systemd-random-seed.service \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer \
    systemd-timesyncd.service systemd-networkd.service systemd-udevd.service systemd-udev-trigger.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
rm -f "$root/etc/resolv.conf"
echo cowork >"$root/etc/hostname"
: >"$root/etc/fstab"
truncate -s 1G "$vm/root.ext4"
mke2fs -q -t ext4 -d "$root" "$vm/root.ext4"

rm -rf --one-file-system "$root" "$vm/initrd.d" "$vm/kernel" "$vm/apt"
echo "$stamp" >"$vm/stamp"
