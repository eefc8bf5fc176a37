#!/bin/bash
# disk.sh OUT WORK COMMIT: WORK/repo -> WORK/disk.img: GRUB for BIOS, and one ext4 with /boot, libostree's
# repository and a deployment of COMMIT. No loop device and no mount.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); OUT=$1; WORK=$2; COMMIT=$3; S=$WORK/sysroot; D=$WORK/disk.img; GRUB=$OUT/grub/usr/lib/grub/i386-pc; MB=2400
export OSTREE_SYSROOT_DEBUG=mutable-deployments
# The tree's own ostree, with its own loader and libraries: sysroot.bootprefix needs it.
T=$OUT/tree; L=$T/usr/lib/x86_64-linux-gnu; ostree() { nice "$L/ld-linux-x86-64.so.2" --library-path "$L" "$T/usr/bin/ostree" "$@"; }
mkdir -p "$S/boot/grub"
ostree admin init-fs --modern "$S"; ostree admin os-init --sysroot="$S" machine
R="--repo=$S/ostree/repo"
ostree $R config set sysroot.bootprefix true; ostree $R config set sysroot.readonly true; ostree $R config set sysroot.bootloader none
ostree $R pull-local "$WORK/repo" "$COMMIT" >/dev/null
KARGS="root=LABEL=machine rw console=ttyS0,115200 loglevel=5 mitigations=off 8250.nr_uarts=2 audit=0 panic=3 rd.shell=0 rd.emergency=reboot systemd.watchdog_sec=120 i6300esb.nowayout=1"
ostree admin deploy --sysroot="$S" --os=machine $(for k in $KARGS; do echo "--karg=$k"; done) "$COMMIT" >/dev/null
cp "$HERE/grub.cfg" "$S/boot/grub/grub.cfg"; grub-editenv "$S/boot/grub/grubenv" create; grub-editenv "$S/boot/grub/grubenv" set boot_success=1
rm -f "$D"; truncate -s $((MB+1))M "$D"; printf 'label: dos\nstart=2048,type=83,bootable\n' | sfdisk -q "$D"
nice mke2fs -q -t ext4 -L machine -m 0 -O ^metadata_csum_seed,^orphan_file -E offset=1048576,lazy_itable_init=1 -d "$S" "$D" ${MB}M
printf 'set root=(hd0,msdos1)\nset prefix=(hd0,msdos1)/boot/grub\nconfigfile /boot/grub/grub.cfg\n' > "$WORK/early.cfg"
grub-mkimage -O i386-pc -d "$GRUB" -p '(hd0,msdos1)/boot/grub' -c "$WORK/early.cfg" -o "$WORK/core.img" \
  biosdisk part_msdos ext2 normal configfile serial terminal linux boot loadenv test echo sleep reboot blsuki
[ "$(stat -c %s "$WORK/core.img")" -lt 1000000 ]
dd if="$GRUB/boot.img" of="$D" bs=440 count=1 conv=notrunc status=none; dd if="$WORK/core.img" of="$D" bs=512 seek=1 conv=notrunc status=none
chattr -R -i "$S" 2>/dev/null || true; rm -rf "$S"
