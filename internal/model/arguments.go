package model

import (
	"slices"
	"strings"
)

// Why an argument is dangerous, in a clause.
const (
	argStopsStart  = "the machine would stop before the node starts"
	argOtherSystem = "the machine would start something else, or without a part of it"
	argLessMachine = "the kernel would use a part of the machine only"
	argNoDriver    = "the kernel would start without a driver that the disk or the network may need"
	argNoNetwork   = "the network of the machine may change, or the names of its interfaces"
	argAccess      = "programs of the node may be refused what they need, or permitted what they must not"
	argCgroups     = "the kubelet or the runtime may not start with other control groups"
)

// dangerousArguments can keep a node from ever reaching its agent. Sources: the kernel's
// kernel-parameters.txt, kernel-command-line(7) of systemd, dracut.cmdline(7).
var dangerousArguments = map[string]string{
	"rd.break": argStopsStart, "rd.emergency": argStopsStart, "emergency": argStopsStart, "-b": argStopsStart, "rescue": argStopsStart, "single": argStopsStart,
	"s": argStopsStart, "S": argStopsStart, "1": argStopsStart, "rd.cmdline": argStopsStart, "systemd.crash_action": argStopsStart,
	"rdinit": argOtherSystem, "rd.systemd.unit": argOtherSystem, "systemd.mask": argOtherSystem, "rd.systemd.mask": argOtherSystem, "systemd.volatile": argOtherSystem,
	"systemd.run": argOtherSystem, "noinitrd": argOtherSystem, "mount.usr": argOtherSystem, "roothash": argOtherSystem, "usrhash": argOtherSystem, "resume": argOtherSystem,
	"mem": argLessMachine, "memmap": argLessMachine, "maxcpus": argLessMachine, "nr_cpus": argLessMachine, "nosmp": argLessMachine,
	"module_blacklist": argNoDriver, "modprobe.blacklist": argNoDriver, "initcall_blacklist": argNoDriver, "rd.driver.blacklist": argNoDriver, "module.sig_enforce": argNoDriver,
	"acpi": argNoDriver, "pci": argNoDriver, "noapic": argNoDriver, "nolapic": argNoDriver, "nousb": argNoDriver,
	"ip": argNoNetwork, "ifname": argNoNetwork, "net.ifnames": argNoNetwork, "biosdevname": argNoNetwork, "nameserver": argNoNetwork, "bond": argNoNetwork, "vlan": argNoNetwork, "bridge": argNoNetwork,
	"enforcing": argAccess, "selinux": argAccess, "apparmor": argAccess, "lsm": argAccess, "security": argAccess, "lockdown": argAccess,
	"cgroup_disable": argCgroups, "cgroup_no_v1": argCgroups, "systemd.unified_cgroup_hierarchy": argCgroups, "systemd.legacy_systemd_cgroup_controller": argCgroups,
}

// DangerousArgument says why a kernel argument can keep a node from starting, "" if none is
// known. The kernel reads - and _ in names alike.
func DangerousArgument(arg string) string {
	key, _, _ := strings.Cut(arg, "=")
	if why := dangerousArguments[key]; why != "" {
		return why
	}
	return dangerousArguments[strings.ReplaceAll(key, "-", "_")]
}

// NewArguments are the kernel arguments that a node gets by its plan and does not have before.
func NewArguments(np *NodePlan) (out []string) {
	for i := range np.Steps {
		for _, c := range np.Steps[i].Changes {
			if c.Path != FieldKernelArguments {
				continue
			}
			had := strings.Fields(c.From)
			for _, a := range strings.Fields(c.To) {
				if !slices.Contains(had, a) {
					out = append(out, a)
				}
			}
		}
	}
	return out
}
