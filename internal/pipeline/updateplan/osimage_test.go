package updateplan

import (
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

func init() {
	only := func(in *Input) { in.Target.Kubernetes = "" }
	wants := model.NodeConfig{OS: &model.ConfigOS{Image: "q/os@sha256:new", KernelArguments: []string{"quiet"}},
		Files: []model.ConfigFile{{Path: "/etc/modules", Mode: 0o644, Owner: "root", Group: "root", Disruption: model.DisruptionReboot}}}
	on := func(more Fields) Fields {
		out := Fields{"os/driver": "bootc", "os/image": "sha256:old", "os/kernel-arguments": "none"}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	stories["an OS image restarts the machine once, after all files were written"] = input(only, cp("n1", old), configuredNode(worker("n2", old), wants, on(nil)))
	brought := wants
	brought.Files = append([]model.ConfigFile{{Path: "/usr/lib/systemd/system/own.service", Mode: 0o644, Owner: "root", Group: "root", Disruption: model.DisruptionReboot, InImage: true},
		{Path: "/etc/systemd/system/own.service", Absent: true, Stale: true, Disruption: model.DisruptionReboot}}, wants.Files...)
	brought.Units = []model.ConfigUnit{{Name: "own.service", State: model.UnitEnabled, Disruption: model.DisruptionRestart}}
	stories["a file in usr comes with the OS image, and its unit is started after the restart"] = input(only, cp("n1", old), configuredNode(worker("n2", old), brought, on(nil)))
	changed := configuredNode(worker("n2", old), brought, nil)
	changed.Current = Fields(brought.Fields())
	changed.Current["file//usr/lib/systemd/system/own.service"] = "sha256:other 0644 root:root"
	stories["a file in usr differs from the booted OS image"] = input(only, cp("n1", old), changed)
	stories["an OS image that is laid over usr restarts no machine"] = input(only, cp("n1", old),
		configuredNode(worker("n2", old), model.NodeConfig{OS: &model.ConfigOS{Image: "q/os@sha256:new"}}, on(Fields{"os/driver": "sysext"})))
	kept := model.NodeConfig{OS: &model.ConfigOS{Image: "q/os@sha256:old", Note: "image q/os@sha256:new differs in 1 file: /etc/chrony.conf (Reload chronyd.service by a rule of the pool): written without a reboot"},
		Files: []model.ConfigFile{{Path: "/etc/chrony.conf", Mode: 0o644, Owner: "root", Group: "root", Data: []byte("x"), Disruption: model.DisruptionReload, Units: []string{"chronyd.service"}},
			{Path: "/etc/motd", AsImage: true, Disruption: model.DisruptionNone}}}
	stories["a newer OS image is not booted, and its files are written"] = input(only, cp("n1", old), configuredNode(worker("n2", old), kept, Fields{"os/driver": "bootc", "os/image": "sha256:old", "os/kernel-arguments": "none",
		"file//etc/chrony.conf": "sha256:a 0644 root:root", "file//etc/motd": "sha256:b 0644 root:root"}))
	stories["an OS of packages with systemd-sysext gets no kernel arguments, and the rest of the node moves"] = input(only, cp("n1", old), configuredNode(worker("n2", old), wants, on(Fields{"os/driver": "sysext"})))
	stories["an OS of packages stays, and the rest of the node moves"] = input(only, cp("n1", old),
		configuredNode(worker("n2", old), wants, Fields{"os/driver": "package", "os/unsupported": "the OS of this node is made of packages", "os/kernel-arguments": "none"}))
}

// A node that was observed at its desired state is not in the plan.
func TestABootedImageIsNoDifference(t *testing.T) {
	in := stories["an OS image restarts the machine once, after all files were written"]
	n := in.Nodes[1]
	n.Current = Fields{"os/image": "sha256:new", "os/kernel-arguments": "quiet", "file//etc/modules": n.Desired["file//etc/modules"]}
	in.Nodes = []Node{in.Nodes[0], n}
	if out := Make(in); !out.NothingToDo() {
		t.Fatalf("%+v", out.Plan)
	}
}

// A host whose OS cannot be moved is no matter of the plan while it runs what it should.
func TestUnsupportedHostWithItsImage(t *testing.T) {
	for name, c := range map[string]struct {
		image    string
		warnings int
	}{"its image": {"sha256:new", 0}, "another image": {"sha256:old", 1}} {
		in := stories["an OS image restarts the machine once, after all files were written"]
		n := in.Nodes[1]
		n.Current = Fields{"os/image": c.image, "os/kernel-arguments": "quiet", "os/unsupported": "it could not drop an image", "file//etc/modules": n.Desired["file//etc/modules"]}
		in.Nodes = []Node{in.Nodes[0], n}
		if out := Make(in); !out.NothingToDo() || len(out.Warnings) != c.warnings {
			t.Errorf("%s: %+v", name, out.Warnings)
		}
	}
}
