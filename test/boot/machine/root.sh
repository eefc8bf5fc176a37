#!/bin/bash
# root.sh OUT: packages of Debian 13 -> OUT/rootfs.tar, an ordinary tree with kernel, dracut and ostree,
# and OUT/grub, the modules of a GRUB that reads boot entries (blscfg, 2.14). The apt configuration of
# this machine stays as it is.
set -euo pipefail
OUT=$1; mkdir -p "$OUT"; cd "$OUT"
MIRROR=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -1)
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p apt/lists/partial apt/cache/archives/partial debs
echo "deb [signed-by=$KEYS] $MIRROR sid main" > apt/sources.list
A="-o Dir::Etc::sourcelist=$OUT/apt/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$OUT/apt/lists -o Dir::Cache=$OUT/apt/cache"
apt-get $A -q update
(cd debs && apt-get $A -q download grub-pc-bin/sid && dpkg-deb -x grub-pc-bin_*.deb ../grub)
test -e grub/usr/lib/grub/i386-pc/blsuki.mod
PACKAGES=systemd,systemd-sysv,udev,kmod,dbus,linux-image-cloud-amd64,dracut,ostree,ostree-boot,e2fsprogs,iproute2,procps,zstd
nice mmdebstrap --quiet --variant=essential --include="$PACKAGES" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/bug/*' \
  --aptopt='APT::Install-Recommends "false"' \
  --essential-hook='mkdir -p "$1/etc/kernel/postinst.d" "$1/etc/dracut.conf.d"; echo "# none" > "$1/etc/dracut.conf.d/00-none.conf"' \
  trixie rootfs.part.tar "$MIRROR"
mv rootfs.part.tar rootfs.tar
rm -rf apt debs
