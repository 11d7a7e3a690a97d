#!/usr/bin/env bash
# Boots the virtual machine with a job and ends with the job's exit code. Needs no root.
#
#   run.sh FOLDER
#
# FOLDER holds `job.sh`, run as root in the machine, and whatever that needs. What it prints is printed. The
# machine is emulated, because nested virtualisation is rarely to be had, has no network, and forgets all it
# wrote. COWORK_VM_MINUTES bounds its life.
set -euo pipefail
vm=$(cd "$(dirname "$0")/../../.build/vm" && pwd)
qemu=$vm/qemu
disks=$(mktemp -d)
trap 'rm -rf --one-file-system "$disks"' EXIT
tar -c -C "$1" . >"$disks/job"
truncate -s %1M "$disks/job"
truncate -s 1M "$disks/result"

libraries=$qemu/usr/lib/x86_64-linux-gnu
disk() {
    echo "-drive if=none,id=$1,format=raw,file=$2,cache=unsafe${3:-} -device virtio-blk-pci,drive=$1"
}
# shellcheck disable=SC2046 # the words of a disk are meant to be split
timeout -k 5 "${COWORK_VM_MINUTES:-60}m" \
    "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$libraries/pulseaudio" \
    "$qemu/usr/bin/qemu-system-x86_64" \
    -L "$qemu/usr/share/qemu" -L "$qemu/usr/share/seabios" -nodefaults -no-user-config -display none \
    -machine q35 -accel tcg,thread=multi -cpu Haswell-v1,-hle,-rtm -smp 2 -m 1024 -no-reboot -serial stdio \
    -kernel "$vm/vmlinuz" -initrd "$vm/initrd" \
    -append 'console=ttyS0 quiet loglevel=3 systemd.show_status=0 audit=0 nokaslr tsc=reliable mitigations=off systemd.unified_cgroup_hierarchy=1' \
    $(disk root "$vm/root.ext4" ,snapshot=on) $(disk job "$disks/job") $(disk result "$disks/result") \
    </dev/null 2> >(grep -v 'TCG does' >&2) | sed -u 's/\r$//; s/\x1b\][^\x07\x1b]*\(\x07\|\x1b\\\)//g; s/\x1b[[!?0-9;]*[a-zA-Z]//g'

status=$(sed -n 's/^status \([0-9]*\)$/\1/p;q' "$disks/result" | tr -d '\0')
[ -n "$status" ] || {
    echo "The machine ended without a result." >&2
    exit 125
}
exit "$status"
