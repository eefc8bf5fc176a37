package updateplan

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// cutOffPath is a file or a directory, and where it is documented.
type cutOffPath struct{ path, source string }

// cutOffPaths are files that can cut a node off, with the documentation that says so. A path
// with a slash at its end is a directory. /usr/lib, /usr/local/lib and /lib count as /etc.
var cutOffPaths = append([]cutOffPath{
	{"/etc/NetworkManager/", "NetworkManager.conf(5)"},
	{"/etc/systemd/network/", "systemd.network(5), systemd.netdev(5), systemd.link(5)"},
	{"/etc/systemd/networkd.conf", "networkd.conf(5)"},
	{"/etc/systemd/networkd.conf.d/", "networkd.conf(5)"},
	{"/etc/netplan/", "netplan(5)"},
	{"/etc/nmstate/", "nmstate, nmstatectl service(8)"},
	{"/etc/network/", "interfaces(5) of ifupdown"},
	{"/etc/sysconfig/network", "sysconfig.txt of initscripts"},
	{"/etc/sysconfig/network/", "ifcfg(5) of wicked"},
	{"/etc/sysconfig/network-scripts/", "sysconfig.txt of initscripts"},
	{"/etc/wicked/", "wicked-config(5)"},
	{"/etc/cloud/", "cloud-init, network configuration"},
	{"/etc/dhcp/", "dhclient.conf(5)"},
	{"/etc/dhcpcd.conf", "dhcpcd.conf(5)"},
	{"/etc/wpa_supplicant/", "wpa_supplicant.conf(5)"},
	{"/etc/udev/rules.d/", "udev(7): names of interfaces"},
	{"/etc/modprobe.d/", "modprobe.d(5): drivers of interfaces"},
	{"/etc/modules-load.d/", "modules-load.d(5)"},
	{"/etc/nftables.conf", "nft(8), nftables.service"},
	{"/etc/nftables/", "nft(8)"},
	{"/etc/sysconfig/nftables.conf", "nftables.service of Fedora"},
	{"/etc/iptables/", "netfilter-persistent(8)"},
	{"/etc/sysconfig/iptables", "iptables.service of Fedora"},
	{"/etc/sysconfig/iptables-config", "iptables.service of Fedora"},
	{"/etc/sysconfig/ip6tables", "ip6tables.service of Fedora"},
	{"/etc/sysconfig/ip6tables-config", "ip6tables.service of Fedora"},
	{"/etc/firewalld/", "firewalld(1)"},
	{"/etc/ufw/", "ufw-framework(8)"},
	{"/etc/resolv.conf", "resolv.conf(5)"},
	{"/etc/resolvconf/", "resolvconf(8)"},
	{"/etc/systemd/resolved.conf", "resolved.conf(5)"},
	{"/etc/systemd/resolved.conf.d/", "resolved.conf(5)"},
	{"/etc/nsswitch.conf", "nsswitch.conf(5)"},
	{"/etc/hosts", "hosts(5)"},
	{"/etc/hostname", "hostname(5): the name of the Node"},
	{"/etc/ssh/", "sshd_config(5)"},
	{distribution.NetworkConfig + "/", "CNI specification, section 1"},
	{"/etc/containerd/", "containerd-config.toml(5)"},
	{"/etc/crio/", "crio.conf(5)"},
	{"/etc/default/kubelet", "kubeadm, kubelet drop-in file for systemd"},
	{"/etc/sysconfig/kubelet", "kubeadm, kubelet drop-in file for systemd"},
	{"/etc/fstab", "systemd-fstab-generator(8): emergency mode"},
	{"/etc/crypttab", "crypttab(5)"},
	{"/etc/selinux/", "selinux(8)"},
}, supervisorConfigs()...)

// supervisorConfigs are the directories of the configuration of distributions that start
// everything with one unit.
func supervisorConfigs() (out []cutOffPath) {
	for _, r := range distribution.Rows() {
		if r.Supervised {
			out = append(out, cutOffPath{path.Dir(r.Places.Config) + "/", r.Source})
		}
	}
	return out
}

// sysctlPaths have settings of the kernel; those of net count (sysctl.d(5)).
var sysctlPaths = []string{"/etc/sysctl.conf", "/etc/sysctl.d/"}

// netSetting is a line of a sysctl file that sets something of the network.
var netSetting = regexp.MustCompile(`(?m)^[ \t]*-?[ \t]*net[./]`)

// cutOffUnits are units that can cut a node off, by the name before the dot and the @.
var cutOffUnits = append([]string{
	"NetworkManager", "nm-cloud-setup", "systemd-networkd", "systemd-networkd-wait-online", "systemd-resolved", "systemd-udevd", "nmstate", "networking", "network", "wicked", "wickedd", "dhcpcd", "wpa_supplicant", "ifup",
	"nftables", "iptables", "ip6tables", "netfilter-persistent", "firewalld", "ufw", "systemd-sysctl",
	"ssh", "sshd",
	"containerd", "crio", "cri-docker", "docker", "refit-agent",
}, nodeUnits()...)

// nodeUnits are the names of the units that start a node, of any distribution.
func nodeUnits() []string {
	units := distribution.Units()
	for i, u := range units {
		units[i] = strings.TrimSuffix(u, ".service")
	}
	return units
}

// inEtc is a path of the vendor's directories as if it were in /etc.
func inEtc(p string) string {
	for _, d := range []string{"/usr/local/lib/", "/usr/lib/", "/lib/"} {
		if rest, ok := strings.CutPrefix(p, d); ok {
			return "/etc/" + rest
		}
	}
	return p
}

// isBelow reports whether a path is the entry, or below it if it ends with a slash.
func isBelow(p, entry string) bool {
	return p == entry || strings.HasSuffix(entry, "/") && strings.HasPrefix(p, entry)
}

// unitCutsOff reports whether a unit can cut the node off.
func unitCutsOff(name string) bool {
	name, _, _ = strings.Cut(name, ".")
	name, _, _ = strings.Cut(name, "@")
	return slices.Contains(cutOffUnits, name)
}

// fileCutsOff reports whether a change of a file can cut the node off. A setting of the kernel
// whose text is not known counts as one of the network.
func fileCutsOff(f model.ConfigFile) bool {
	p := inEtc(f.Path)
	if u := model.UnitOf(f.Path); u != "" && unitCutsOff(u) || slices.ContainsFunc(f.Units, unitCutsOff) {
		return true
	}
	if slices.ContainsFunc(sysctlPaths, func(d string) bool { return isBelow(p, d) }) {
		return f.Data == nil || netSetting.Match(f.Data)
	}
	for _, e := range cutOffPaths {
		if isBelow(p, e.path) {
			return true
		}
	}
	return false
}

// cutsOff reports whether a change can cut the node off: images and kernel arguments, and the
// files and units of the lists above.
func cutsOff(c model.Change, config *model.NodeConfig) bool {
	if strings.HasPrefix(c.Path, prefixOS) {
		return true
	}
	if unit, ok := strings.CutPrefix(c.Path, PrefixUnit); ok {
		return unitCutsOff(unit)
	}
	name, ok := strings.CutPrefix(c.Path, PrefixFile)
	if !ok {
		return false
	}
	f := model.ConfigFile{Path: name}
	if config != nil {
		if i := slices.IndexFunc(config.Files, func(f model.ConfigFile) bool { return f.Path == name }); i >= 0 {
			f = config.Files[i]
		}
	}
	return fileCutsOff(f)
}

// armUndo gives the steps of a node that can cut it off the pool's deadline, in seconds.
func armUndo(np *model.NodePlan, config *model.NodeConfig, seconds int32) {
	if seconds <= 0 {
		return
	}
	var armed []string
	for i := range np.Steps {
		s := &np.Steps[i]
		if s.By != model.ByAgent || !slices.ContainsFunc(s.Changes, func(c model.Change) bool { return cutsOff(c, config) }) {
			continue
		}
		params := map[string]string{model.ParamUndoDeadline: fmt.Sprint(seconds)}
		maps.Copy(params, s.Params)
		s.Params = params
		armed = append(armed, s.ID)
	}
	if len(armed) > 0 {
		np.Notes = append(np.Notes, fmt.Sprintf("the node undoes its steps by itself if it is unwell for %s after %s, which can cut it off", time.Duration(seconds)*time.Second, strings.Join(armed, ", ")))
	}
}
