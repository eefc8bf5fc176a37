package model

import (
	"slices"
	"testing"
)

func TestDangerousArgument(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"rdinit=/bin/sh", "rd.break", "single", "1", "-b", "emergency", "rd.systemd.unit=rescue.target", "systemd.mask=kubelet.service", "mem=64M", "maxcpus=0",
		"module_blacklist=virtio_net", "module-blacklist=virtio_net", "ip=10.0.0.1::::eth9:none", "enforcing=0", "cgroup_disable=memory"} {
		if DangerousArgument(arg) == "" {
			t.Errorf("%s is not dangerous", arg)
		}
	}
	for _, arg := range []string{"quiet", "console=ttyS0", "panic=10", "hugepages=64", "isolcpus=2-3", "memory_hotplug.memmap_on_memory=1", "10", "mitigations=auto", "crashkernel=256M"} {
		if why := DangerousArgument(arg); why != "" {
			t.Errorf("%s is dangerous: %s", arg, why)
		}
	}
}

// Arguments that a node has already were borne by it.
func TestNewArguments(t *testing.T) {
	t.Parallel()
	np := NodePlan{Steps: []Step{{ID: "drain"}, {ID: "os-image", Changes: []Change{{Path: FieldOSImage, To: "sha256:1"}, {Path: FieldKernelArguments, From: "quiet mem=8G", To: "mem=8G rd.break quiet mem=4G"}}}}}
	if got := NewArguments(&np); !slices.Equal(got, []string{"rd.break", "mem=4G"}) {
		t.Errorf("%q", got)
	}
}
