package machine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func example(dir string) *Machine {
	return &Machine{Name: "n2", Number: 2, Dir: dir, Address: "10.88.0.12/24", Gateway: "10.88.0.1", PodCIDR: "10.244.2.0/24",
		Peers: []Peer{{Name: "n1", Address: "10.88.0.11", PodCIDR: "10.244.1.0/24"}}, CNIDir: filepath.Join(dir, "cni"),
		Pause: "registry.k8s.io/pause:3.10.2", Media: []Medium{{Loop: 8, File: "/srv/stick"}}}
}

func TestAMachineIsReadAsItWasWritten(t *testing.T) {
	want := example(t.TempDir())
	if err := want.Save(); err != nil {
		t.Fatal(err)
	}
	got, err := Load(want.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):", diff)
	}
}

// A disk whose filling was cut off, here at every step, ends up like one that was filled at once.
func TestADiskCutOffWhileBeingFilledIsFilledAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: sets attributes only root may set")
	}
	dir := t.TempDir()
	m := example(dir)
	if err := os.Mkdir(m.CNIDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.CNIDir, "bridge"), []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	for _, step := range []func(string) error{m.makeDirs, m.hideServices, m.identify, m.writeFiles, m.enable, m.copyPlugins} {
		if err := step(disk); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.populate(disk); err != nil {
		t.Fatal(err)
	}
	id := read(t, disk, "etc-up/machine-id")
	if err := m.populate(disk); err != nil {
		t.Fatal(err)
	}
	if again := read(t, disk, "etc-up/machine-id"); again != id {
		t.Error("a disk that was full was filled again")
	}
	if len(strings.TrimSpace(id)) != 32 {
		t.Errorf("machine id %q", id)
	}
	for name, want := range map[string]string{
		"etc-up/resolv.conf":                       "nameserver 10.88.0.1\n",
		"etc-up/hosts":                             "10.88.0.11 n1",
		"etc-up/containerd/config.toml":            "sandbox = 'registry.k8s.io/pause:3.10.2'",
		"etc-up/systemd/system/kubelet.service":    "ExecStart=/usr/local/bin/kubelet",
		"root/opt/cni/bin/bridge":                  "#!/bin/true",
		"etc-up/systemd/journald.conf.d/lab.conf":  "ReadKMsg=no",
		"etc-up/systemd/system.conf.d/lab.conf":    "DefaultTimeoutStopSec=20s",
		"etc-up/systemd/system/containerd.service": "Type=notify",
	} {
		if got := read(t, disk, name); !strings.Contains(got, want) {
			t.Errorf("%s without %q: %q", name, want, got)
		}
	}
	var network struct {
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal([]byte(read(t, disk, "etc-up/cni/net.d/10-lab.conflist")), &network); err != nil {
		t.Fatal(err)
	}
	if subnet := network.Plugins[0].IPAM.Ranges[0][0].Subnet; subnet != m.PodCIDR {
		t.Errorf("pods get addresses of %q", subnet)
	}
	if target, err := os.Readlink(filepath.Join(disk, "etc-up/systemd/system/systemd-udevd.service")); err != nil || target != "/dev/null" {
		t.Errorf("udev is not masked: %q, %v", target, err)
	}
}

func read(t *testing.T, disk, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(disk, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
