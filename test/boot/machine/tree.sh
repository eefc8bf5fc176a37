#!/bin/bash
# tree.sh OUT: OUT/rootfs.tar -> OUT/tree and OUT/base.tar, the layer that all images share. Root.
# Most of it leaves out what costs start time where every instruction is emulated.
set -euo pipefail
OUT=$1; T=$OUT/tree
rm -rf "$T"; mkdir -p "$T"; tar -C "$T" --xattrs --xattrs-include='*' -xpf "$OUT/rootfs.tar" --exclude='./dev/*'
K=$(ls "$T/usr/lib/modules" | head -1); [ -n "$K" ]
put() { mkdir -p "$(dirname "$T/$1")"; cat > "$T/$1"; }

# Units: only what a test needs.
for u in serial-getty@ttyS0.service getty@tty1.service getty-static.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
  e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-networkd-wait-online.service systemd-network-generator.service \
  systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-pcrmachine.service systemd-pcrextend.socket systemd-pcrlock.socket systemd-tpm2-setup.service systemd-tpm2-setup-early.service \
  systemd-hwdb-update.service ldconfig.service systemd-update-done.service systemd-firstboot.service systemd-sysusers.service systemd-journal-catalog-update.service systemd-random-seed.service \
  systemd-binfmt.service proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount run-lock.mount \
  modprobe@configfs.service modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service kmod-static-nodes.service systemd-pstore.service systemd-hibernate-clear.service \
  systemd-ask-password-console.path systemd-ask-password-wall.path systemd-creds.socket systemd-hostnamed.socket systemd-initctl.socket systemd-sysext.socket systemd-tmpfiles-clean.timer \
  systemd-udev-load-credentials.service systemd-logind.service systemd-machine-id-commit.service systemd-battery-check.service systemd-bsod.service keyboard-setup.service console-setup.service; do
  ln -sfn /dev/null "$T/etc/systemd/system/$u"
done
for g in debug getty gpt-auto hibernate-resume rc-local run ssh system-update sysv tpm2 cryptsetup veritysetup integritysetup; do rm -f "$T/usr/lib/systemd/system-generators/systemd-$g-generator"; done
ln -sfn /usr/lib/systemd/system/multi-user.target "$T/etc/systemd/system/default.target"
W=$T/etc/systemd/system/multi-user.target.wants; mkdir -p "$W"
ln -sfn /usr/lib/systemd/system/machine-shell.service "$W/"
ln -sfn /usr/lib/systemd/system/systemd-networkd.service "$W/"
: > "$T/etc/machine-id"; echo machine > "$T/etc/hostname"; : > "$T/etc/fstab"; rm -f "$T/etc/resolv.conf"
put etc/systemd/network/10-machine.network <<'E'
[Match]
Type=ether
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
LinkLocalAddressing=no
IPv6AcceptRA=no
E
# What a host must have so that a failed boot ends: see docs/reference/os-hosts.md.
conf() { # DIR
  put "$1/etc/systemd/system.conf.d/machine.conf" <<'E'
[Manager]
RebootWatchdogSec=60
DefaultTimeoutStopSec=20
CrashAction=reboot
DefaultDeviceTimeoutSec=600
E
  for u in emergency rescue; do put "$1/etc/systemd/system/$u.service.d/machine.conf" <<E
[Service]
ExecStartPre=
ExecStart=
ExecStart=-/bin/sh -c "echo machine: $u > /dev/console; sleep 1; systemctl reboot -f"
E
  done
  put "$1/etc/systemd/system/systemd-udev-trigger.service.d/machine.conf" <<'E'
[Service]
ExecStart=
ExecStart=-udevadm trigger --type=devices --action=add --subsystem-match=block --subsystem-match=virtio --subsystem-match=pci --subsystem-match=net
E
}
conf .
I=usr/lib/machine/initrd; conf $I
for u in kmod-static-nodes systemd-battery-check systemd-bsod systemd-pcrphase-initrd systemd-sysusers systemd-tmpfiles-setup-dev-early systemd-tpm2-setup-early; do ln -sfn /dev/null "$T/$I/etc/systemd/system/$u.service"; done
echo i6300esb | put usr/lib/modules-load.d/machine.conf
put usr/lib/systemd/system/machine-shell.service <<'E'
[Unit]
Description=commands of the test, on the second serial port
DefaultDependencies=no
After=systemd-remount-fs.service local-fs.target
[Service]
ExecStart=/usr/lib/machine/shell
Restart=always
RestartSec=1
E
put usr/lib/machine/shell <<'E'
#!/bin/bash
# A request a line: "ID base64(command)"; the answer: "ID rc base64(output)".
exec 3<>/dev/ttyS1; stty -F /dev/ttyS1 raw -echo 115200
while read -r id b64 <&3; do
  [ -n "$b64" ] || continue
  out=$(bash -c "$(echo "$b64" | base64 -d)" 2>&1 </dev/null); rc=$?
  echo "$id $rc $(echo "$out" | base64 -w0)" >&3
done
E
chmod 755 "$T/usr/lib/machine/shell"
put usr/lib/tmpfiles.d/machine.conf <<'E'
d /var/roothome 0700
d /var/home
d /var/opt
d /var/srv
d /var/mnt
d /var/tmp 1777
d /var/lib
d /var/log
d /var/log/journal
E

# The kernel where ostree looks for it, and an initramfs by dracut with ostree's module.
mv "$T/boot/vmlinuz-$K" "$T/usr/lib/modules/$K/vmlinuz"; rm -rf "$T/boot"; mkdir "$T/boot"
( cd "$T/usr/lib/modules/$K/kernel/drivers"; for d in *; do case $d in block|char|net|virtio|watchdog|dax|platform|virt) ;; *) rm -rf "$d";; esac; done; cd net && for d in *; do [ -d "$d" ] && rm -rf "$d"; done; true )
( cd "$T/usr/lib/udev/rules.d"; rm -f *drm* *alsa* *sound* *v4l* *input* *evdev* *joystick* *mouse* *touchpad* *camera* *fido* *cdrom* *infiniband* *mtd* *tape* *seat* *sensor* *uaccess* *autosuspend* *iocost* *debian-compat* )
trap 'umount "$T/dev" "$T/proc" "$T/tmp" 2>/dev/null || true' EXIT
mount --bind /dev "$T/dev"; mount -t proc proc "$T/proc"; mount -t tmpfs tmpfs "$T/tmp"
nice chroot "$T" depmod "$K"
nice chroot "$T" dracut --quiet --force --no-hostonly --no-hostonly-cmdline --no-early-microcode --reproducible --strip \
  --modules "base systemd systemd-initrd udev-rules rootfs-block kernel-modules ostree shutdown" \
  --include /usr/lib/machine/initrd / --drivers "virtio_blk virtio_pci virtio ext4 overlay erofs i6300esb" --zstd "/usr/lib/modules/$K/initramfs.img" "$K"
umount "$T/dev" "$T/proc" "$T/tmp"; trap - EXIT

# The folders of a host with libostree; refit makes the rest of them when it writes the commit.
rm -rf "$T"/{dev,proc,sys,run,tmp,var,home,root,opt,srv,mnt,media,boot,lost+found,.dockerenv}
for l in root:var/roothome home:var/home opt:var/opt srv:var/srv mnt:var/mnt media:run/media; do ln -s "${l#*:}" "$T/${l%%:*}"; done
rm -rf "$T/usr/share/zoneinfo" "$T/usr/lib/x86_64-linux-gnu/gconv" "$T"/initrd.img* "$T"/vmlinuz* "$T/etc/os-release"
ln -s ../usr/lib/os-release "$T/etc/os-release"
tar -C "$T" --sort=name --mtime=@1 --numeric-owner --xattrs --xattrs-include='security.capability' -cf "$OUT/base.part.tar" .
mv "$OUT/base.part.tar" "$OUT/base.tar"
