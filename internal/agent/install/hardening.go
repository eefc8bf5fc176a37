package install

import "strings"

// setting is a line of a unit's [Service] section and the reason for it.
type setting struct{ line, why string }

// agentHardening removes privileges that the agent does not need. It must not give the agent
// a mount namespace of its own: systemd-sysext, ostree and bootc run below it and mount for
// the host. docs/reference/hardening.md has the reasons for what stays.
func agentHardening() []setting {
	return append([]setting{
		{"MemoryMax=1G", "Bounded input needs far less; an agent that grows is killed and restarted before pods are."},
		{"Environment=GOMEMLIMIT=512MiB", "Collect garbage harder long before the limit."},
		{"OOMPolicy=continue", "A host tool that is killed for memory fails its step, and does not end the agent."},
		{"TasksMax=1024", "Threads of the agent and of the host tools below it."},
		{"CapabilityBoundingSet=" + strings.Join(agentCapabilities, " "), "What file writers, ostree and bootc need. No clock, module, raw I/O, network administration, boot."},
		{"RestrictNamespaces=mnt net pid ipc uts", "Of host tools that mount, and of programs that run without rights; none needs user or cgroup namespaces."},
	}, commonHardening()...)
}

// agentCapabilities are what the agent and the host tools below it need.
var agentCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_SETFCAP", // files of the host and of image layers
	"CAP_MKNOD",                            // whiteouts of layers
	"CAP_LINUX_IMMUTABLE", "CAP_MAC_ADMIN", // ostree's deployments and their labels
	"CAP_SYS_ADMIN", "CAP_SYS_CHROOT", // mounts of ostree, bootc and systemd-sysext
	"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", // to run what is not trusted without rights
	"CAP_KILL",                                 // to end it
	"CAP_SYS_PTRACE",                           // which program the kubelet runs, and who holds a port
	"CAP_NET_BIND_SERVICE", "CAP_SYS_RESOURCE", // a loopback port that only root can take; the disk's reserve for root
}

// checkHardening is for the check before the kubelet starts. Only the unit's own shell
// starts programs. With a memory limit the kernel could kill the check half-way, and a
// namespace that cannot be set up would leave images unchecked.
func checkHardening() []setting {
	return append([]setting{
		{"Environment=GOMEMLIMIT=512MiB", "Collect garbage harder; no MemoryMax, since a check that is killed leaves images unchecked."},
		{"TasksMax=1024", "Threads of the check."},
		{"CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_SETFCAP CAP_MAC_ADMIN CAP_MKNOD CAP_NET_BIND_SERVICE CAP_SYS_ADMIN CAP_SYS_PTRACE CAP_SYS_RESOURCE",
			"To restore files of layers with owner, mode, labels and attributes (trusted.overlay.* is CAP_SYS_ADMIN)."},
		{"NoNewPrivileges=yes", "No program that it starts gains rights."},
		{"RestrictNamespaces=yes", "It makes no namespace."},
	}, commonHardening()...)
}

func commonHardening() []setting {
	return []setting{
		{"SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap", "No part of the work; restarts of the machine are asked of systemd. A list of what is denied: newer host tools need newer calls."},
		{"SystemCallErrorNumber=EPERM", "A host tool gets an error and can say so."},
		{"SystemCallArchitectures=native", "No second way around the filter."},
		{"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "Peers, API server, local sockets, device events."},
		{"LockPersonality=yes", "No execution domain but Linux's own."},
		{"MemoryDenyWriteExecute=yes", "No code is made at run time."},
		{"RestrictRealtime=yes", "Realtime scheduling could starve pods."},
	}
}

// settingLines are the lines of a unit file, each below its reason.
func settingLines(all []setting) string {
	var b strings.Builder
	for _, s := range all {
		b.WriteString("# " + s.why + "\n" + s.line + "\n")
	}
	return b.String()
}
