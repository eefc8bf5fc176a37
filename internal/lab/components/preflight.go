package components

import (
	"fmt"
	"os/exec"
	"strings"
)

// Package is a Debian package a lab needs, and a file that shows it is there.
type Package struct{ Name, Shown string }

// DebianPackages are the packages a lab needs on the machine. systemd, dbus and
// the rest run inside the nodes, whose /usr is a layer over the machine's.
var DebianPackages = []Package{
	{"systemd", "/lib/systemd/systemd"},
	{"dbus", "/usr/bin/dbus-daemon"},
	{"runc", "/usr/sbin/runc"},
	{"iptables", "/usr/sbin/xtables-nft-multi"},
	{"nftables", "/usr/sbin/nft"},
	{"libseccomp2", "/usr/lib/" + triplet + "/libseccomp.so.2"},
	{"iproute2", "/bin/ip"},
	{"mount", "/bin/mount"},
	{"util-linux", "/usr/bin/nsenter"},
	{"e2fsprogs", "/sbin/mkfs.ext4"},
	{"procps", "/sbin/sysctl"},
}

// MissingPackages returns the DebianPackages that are not installed on this machine.
func MissingPackages() []string { return missing(DebianPackages) }

func missing(packages []Package) []string {
	var names []string
	for _, p := range packages {
		if !exists(p.Shown) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Preflight returns what is missing on the machine to build and run a lab.
func Preflight() error {
	if missing := MissingPackages(); len(missing) > 0 {
		names := strings.Join(missing, " ")
		return fmt.Errorf("missing Debian packages: %s; install them: apt-get install -y --no-install-recommends %s", names, names)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("the Go toolchain is missing: %w; the lab's components are built from source, install Go and put it into PATH", err)
	}
	return nil
}
