package nodeconfig

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

func file(path string) model.ConfigFile {
	return model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte("x")}
}

// key is a public key of some letters.
func key(s string) string {
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString([]byte("key "+s)) + " admin@" + s
}

func src(name string, files ...model.ConfigFile) Source { return Source{Name: name, Files: files} }

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		sources []Source
		// blockers, as "Reason: part of the message"; none means that it merges.
		blockers []string
	}{
		"nothing is asked":                                    {nil, nil},
		"two sources with files of their own":                 {[]Source{src("a", file("/etc/a")), src("b", file("/etc/b"))}, nil},
		"the same path twice":                                 {[]Source{src("a", file("/etc/a")), src("b", file("/etc/a"))}, []string{"ConfigConflict: NodeConfigs a and b both want file /etc/a"}},
		"a file and a unit's file are the same":               {[]Source{{Name: "a", Files: []model.ConfigFile{file("/etc/systemd/system/x.service")}, Units: []Unit{{Name: "x.service", Contents: "c"}}}}, []string{"ConfigInvalid: NodeConfig a: file /etc/systemd/system/x.service is there twice"}},
		"drop-ins of one unit from two sources":               {[]Source{{Name: "a", Units: []Unit{{Name: "x.service", Dropins: []Dropin{{"1.conf", "c"}}}}}, {Name: "b", Units: []Unit{{Name: "x.service", Dropins: []Dropin{{"2.conf", "c"}}}}}}, nil},
		"the same drop-in from two sources":                   {[]Source{{Name: "a", Units: []Unit{{Name: "x.service", Dropins: []Dropin{{"1.conf", "c"}}}}}, {Name: "b", Units: []Unit{{Name: "x.service", Dropins: []Dropin{{"1.conf", "c"}}}}}}, []string{"ConfigConflict: NodeConfigs a and b both want file /etc/systemd/system/x.service.d/1.conf"}},
		"the state of one unit from two sources":              {[]Source{{Name: "a", Units: []Unit{{Name: "x.service", State: "enabled"}}}, {Name: "b", Units: []Unit{{Name: "x.service", State: "masked"}}}}, []string{"ConfigConflict: NodeConfigs a and b both want unit x.service"}},
		"a private key in a file":                             {[]Source{src("a", model.ConfigFile{Path: "/etc/x.pem", Data: []byte("-----BEGIN EC PRIVATE KEY-----\n")})}, []string{"ConfigInvalid: NodeConfig a: file /etc/x.pem is refused: it holds a private key"}},
		"a password in a drop-in":                             {[]Source{{Name: "a", Units: []Unit{{Name: "x.service", Dropins: []Dropin{{"1.conf", "[Service]\nEnvironment=A=b\nDB_PASSWORD=correct-horse\n"}}}}}}, []string{"ConfigInvalid: NodeConfig a: file /etc/systemd/system/x.service.d/1.conf is refused: it holds a password or a key"}},
		"a place for secrets":                                 {[]Source{src("a", model.ConfigFile{Path: "/etc/wireguard/wg0.conf", Data: []byte("x")})}, []string{"ConfigInvalid: NodeConfig a: file /etc/wireguard/wg0.conf is refused: /etc/wireguard/wg0.conf is a place for secrets"}},
		"kubeadm's directory":                                 {[]Source{src("a", file("/etc/kubernetes/pki/ca.key"))}, []string{"ConfigInvalid: NodeConfig a: file /etc/kubernetes/pki/ca.key is refused: /etc/kubernetes is kubeadm's"}},
		"fields of two sources":                               {[]Source{{Name: "a", Fields: []model.ConfigField{{Path: "bios/main", Value: "1", File: "/sys/b"}}}, {Name: "b", Fields: []model.ConfigField{{Path: "nic/eth0", Value: "1", File: "/run/n"}}}}, nil},
		"the same field from two sources":                     {[]Source{{Name: "a", Fields: []model.ConfigField{{Path: "bios/main", Value: "1", File: "/sys/b"}}}, {Name: "b", Fields: []model.ConfigField{{Path: "bios/main", Value: "2", File: "/sys/b"}}}}, []string{"ConfigConflict: NodeConfigs a and b both want field bios/main"}},
		"a field in kubeadm's directory":                      {[]Source{{Name: "a", Fields: []model.ConfigField{{Path: "x/y", Value: "1", File: "/etc/kubernetes/admin.conf"}}}}, []string{"ConfigInvalid: NodeConfig a: field x/y cannot be seen in /etc/kubernetes/admin.conf"}},
		"a path that climbs":                                  {[]Source{src("a", file("/etc/../etc/kubernetes/x"))}, []string{"ConfigInvalid: NodeConfig a: file /etc/../etc/kubernetes/x is refused: it is not a clean path"}},
		"refit's own unit, by file":                           {[]Source{src("a", file("/etc/systemd/system/refit-agent.service.d/x.conf"))}, []string{"ConfigInvalid: NodeConfig a: file /etc/systemd/system/refit-agent.service.d/x.conf is refused: refit's own unit"}},
		"refit's own unit, by state":                          {[]Source{{Name: "a", Units: []Unit{{Name: "refit-agent.service", State: "masked"}}}}, []string{"ConfigInvalid: NodeConfig a: unit refit-agent.service cannot be masked: it is refit's own"}},
		"the kubelet is not switched off":                     {[]Source{{Name: "a", Units: []Unit{{Name: "kubelet.service", State: "disabled"}}}}, []string{"ConfigInvalid: NodeConfig a: unit kubelet.service cannot be disabled: the node needs it"}},
		"k3s's datastore":                                     {[]Source{src("a", file("/var/lib/rancher/k3s/server/db/state.db"))}, []string{"ConfigInvalid: NodeConfig a: file /var/lib/rancher/k3s/server/db/state.db is refused: /var/lib/rancher/k3s is k3s's"}},
		"a field in k0s's identity":                           {[]Source{{Name: "a", Fields: []model.ConfigField{{Path: "x/y", Value: "1", File: "/var/lib/k0s/kubelet.conf"}}}}, []string{"ConfigInvalid: NodeConfig a: field x/y cannot be seen in /var/lib/k0s/kubelet.conf"}},
		"the supervisor is not switched off":                  {[]Source{{Name: "a", Units: []Unit{{Name: "rke2-server.service", State: "masked"}}}}, []string{"ConfigInvalid: NodeConfig a: unit rke2-server.service cannot be masked: the node needs it"}},
		"k3s's own configuration restarts it":                 {[]Source{src("a", model.ConfigFile{Path: "/etc/rancher/k3s/registries.yaml", Data: []byte("mirrors: {}"), Units: []string{"k3s-agent.service"}})}, nil},
		"a drop-in of the kubelet is welcome":                 {[]Source{{Name: "a", Units: []Unit{{Name: "kubelet.service", Dropins: []Dropin{{"50-x.conf", "c"}}}}}}, nil},
		"a file below a file":                                 {[]Source{src("a", file("/etc/a")), src("b", file("/etc/a/b"))}, []string{"ConfigInvalid: NodeConfig b: file /etc/a/b is below /etc/a, which NodeConfig a wants"}},
		"kubelet fields side by side":                         {[]Source{{Name: "a", Kubelet: map[string]any{"evictionHard": map[string]any{"memory.available": "1Gi"}}}, {Name: "b", Kubelet: map[string]any{"evictionHard": map[string]any{"nodefs.available": "5%"}, "maxPods": 50.0}}}, nil},
		"the same kubelet field, nested":                      {[]Source{{Name: "a", Kubelet: map[string]any{"evictionHard": map[string]any{"memory.available": "1Gi"}}}, {Name: "b", Kubelet: map[string]any{"evictionHard": map[string]any{"memory.available": "2Gi"}}}}, []string{"ConfigConflict: NodeConfigs a and b both want the kubelet's field evictionHard.memory.available"}},
		"a map here and a value there":                        {[]Source{{Name: "a", Kubelet: map[string]any{"x": map[string]any{"y": 1.0}}}, {Name: "b", Kubelet: map[string]any{"x": 1.0}}}, []string{"ConfigConflict"}},
		"a kubelet field that would lose the pods":            {[]Source{{Name: "a", Kubelet: map[string]any{"staticPodPath": "/tmp"}}}, []string{"ConfigInvalid: NodeConfig a: the kubelet's field staticPodPath is refused"}},
		"the same kernel argument twice is one":               {[]Source{{Name: "a", KernelArguments: []string{"quiet"}}, {Name: "b", KernelArguments: []string{"quiet"}}}, nil},
		"two values of one kernel argument":                   {[]Source{{Name: "a", KernelArguments: []string{"mitigations=off"}}, {Name: "b", KernelArguments: []string{"mitigations=auto"}}}, []string{"ConfigConflict: NodeConfigs a and b both want kernel argument mitigations"}},
		"two consoles":                                        {[]Source{{Name: "a", KernelArguments: []string{"console=tty0"}}, {Name: "b", KernelArguments: []string{"console=ttyS0"}}}, nil},
		"two values in one NodeConfig are as its writer says": {[]Source{{Name: "a", KernelArguments: []string{"x=1", "x=2"}}}, nil},
		"an argument of the installation":                     {[]Source{{Name: "a", KernelArguments: []string{"fips=1"}}}, []string{"ConfigInvalid: NodeConfig a: kernel argument \"fips=1\" is refused: it is set when the machine is installed"}},
		"libostree's own argument":                            {[]Source{{Name: "a", KernelArguments: []string{"ostree=/x"}}}, []string{"ConfigInvalid: NodeConfig a: kernel argument \"ostree=/x\" is refused: it names the deployment"}},
		"an argument of two words":                            {[]Source{{Name: "a", KernelArguments: []string{"a b"}}}, []string{"ConfigInvalid: NodeConfig a: kernel argument \"a b\" is refused: it must be one word"}},
		"keys of one user from two sources":                   {[]Source{{Name: "a", SSHKeys: []SSHKeys{{"core", []string{key("a")}}}}, {Name: "b", SSHKeys: []SSHKeys{{"core", []string{key("b")}}}}}, nil},
		"a user's keys, and the file of them":                 {[]Source{{Name: "a", SSHKeys: []SSHKeys{{"core", []string{key("a")}}}}, src("b", file("/home/core/.ssh/authorized_keys"))}, []string{"ConfigConflict: NodeConfigs a and b both want file /home/core/.ssh/authorized_keys"}},
		"a private key is not repeated":                       {[]Source{{Name: "a", SSHKeys: []SSHKeys{{"core", []string{"-----BEGIN OPENSSH PRIVATE KEY-----"}}}}}, []string{"ConfigInvalid: NodeConfig a: ssh key 1 of user core is refused: it is a private key"}},
		"a key with options":                                  {[]Source{{Name: "a", SSHKeys: []SSHKeys{{"core", []string{"restrict " + key("a")}}}}}, []string{"ConfigInvalid: NodeConfig a: ssh key 1 of user core is refused: it does not begin with a type"}},
		"a user whose name leads elsewhere":                   {[]Source{{Name: "a", SSHKeys: []SSHKeys{{"../root", []string{key("a")}}}}}, []string{"ConfigInvalid: NodeConfig a: \"../root\" is no name of a user"}},
		"a package that is a command":                         {[]Source{{Name: "a", Packages: []string{"x;reboot"}}}, []string{"ConfigInvalid: NodeConfig a: \"x;reboot\" is no name of a package"}},
		"two sandbox images":                                  {[]Source{{Name: "a", SandboxImage: "p:1"}, {Name: "b", SandboxImage: "p:2"}}, []string{"ConfigConflict: NodeConfigs a and b both want the sandbox image"}},
		"every problem is reported":                           {[]Source{src("a", file("/etc/kubernetes/x"), file("/dev/x")), {Name: "b", Problems: []string{"ConfigMap motd is not there"}}}, []string{"ConfigInvalid", "ConfigInvalid", "ConfigInvalid: NodeConfig b: ConfigMap motd"}},
		"too large for a Content":                             {[]Source{src("a", model.ConfigFile{Path: "/etc/big", Data: make([]byte, maxBytes)})}, []string{"ConfigInvalid: the configuration of a node is"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, vs := Merge(c.sources)
			if len(vs) != len(c.blockers) {
				t.Fatalf("blockers %+v", vs)
			}
			for i, want := range c.blockers {
				if says := vs[i].Reason + ": " + vs[i].Message; !strings.HasPrefix(says, want) || vs[i].Fix == "" {
					t.Errorf("blocker %q (fix %q), want %q", says, vs[i].Fix, want)
				}
			}
			if len(vs) > 0 && !got.Empty() {
				t.Fatal("a configuration in spite of a blocker")
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	c, vs := Merge([]Source{{Name: "a",
		Files:   []model.ConfigFile{file("/etc/sysctl.d/9.conf"), file("/etc/motd"), {Path: "/etc/x", Units: []string{"x.service"}}, {Path: "/etc/y", Disruption: model.DisruptionReboot}, {Path: "/etc/gone", Absent: true, Mode: 1}},
		Units:   []Unit{{Name: "p.service", State: "enabled", Contents: "[Service]"}},
		Kubelet: map[string]any{"kind": "KubeletConfiguration", "maxPods": 50.0},
	}})
	if len(vs) > 0 {
		t.Fatal(vs)
	}
	got := map[string]string{}
	for _, f := range c.Files {
		got[f.Path] = fmt.Sprint(f.Disruption, " ", f.Units, " ", f.Mode)
	}
	want := map[string]string{"/etc/sysctl.d/9.conf": "reload [systemd-sysctl.service] 420", "/etc/motd": "none [] 420", "/etc/x": "restart [x.service] 0",
		"/etc/y": "reboot [] 0", "/etc/gone": "none [] 0", "/etc/systemd/system/p.service": "restart [p.service] 420"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c.Kubelet != `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":50}` {
		t.Error(c.Kubelet)
	}
	if c.DisruptionOf("file//etc/y") != model.DisruptionReboot || c.DisruptionOf("unit/p.service") != model.DisruptionRestart || c.DisruptionOf("file//etc/none") != model.DisruptionNone {
		t.Error("disruptions")
	}
}

// The order of the sources is nothing; what is rendered is what its name says,
// and survives being read.
func TestOrderIsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sources []Source
		for i := range rapid.IntRange(0, 4).Draw(t, "sources") {
			s := Source{Name: fmt.Sprint("s", i)}
			for j := range rapid.IntRange(0, 3).Draw(t, "files") {
				p := rapid.SampledFrom([]string{"/etc/a", "/etc/b", "/etc/a/c", "/etc/kubernetes/x", "/etc/sysctl.d/x"}).Draw(t, "path")
				if j == 0 || !strings.Contains(fmt.Sprint(s.Files), p) {
					s.Files = append(s.Files, file(p))
				}
			}
			s.KernelArguments = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"quiet", "console=tty0", "console=ttyS0", "a=1", "a=2", "root=x"}), 0, 3, rapid.ID).Draw(t, "arguments")
			for _, k := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 2).Draw(t, "keys") {
				s.SSHKeys = []SSHKeys{{"core", []string{key(k) + s.Name}}} // the same key, another comment
			}
			s.Packages = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"chrony", "vim", "-x"}), rapid.ID).Draw(t, "packages")
			if rapid.Bool().Draw(t, "kubelet") {
				s.Kubelet = map[string]any{rapid.SampledFrom([]string{"maxPods", "a"}).Draw(t, "field"): 1.0}
			}
			sources = append(sources, s)
		}
		a, va := Merge(sources)
		rand.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		b, vb := Merge(sources)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(va, vb); diff != "" {
			t.Fatal(diff)
		}
		var back model.NodeConfig
		if err := json.Unmarshal(a.JSON(), &back); err != nil || string(back.JSON()) != string(a.JSON()) {
			t.Fatal("reading it gives another", err)
		}
		owners := map[string]int{}
		for _, f := range a.Files {
			owners[f.Path]++
		}
		for p, n := range owners {
			if n > 1 || model.ProtectedPath(p) != "" {
				t.Fatalf("%s %d times", p, n)
			}
		}
	})
}

// What several NodeConfigs add to one list, as a node gets it.
func TestLists(t *testing.T) {
	c, vs := Merge([]Source{
		{Name: "b", KernelArguments: []string{"quiet", "console=ttyS0"}, Packages: []string{"vim", "chrony"}, SSHKeys: []SSHKeys{{"core", []string{key("b"), key("a") + "-laptop"}}, {"root", []string{key("a")}}}},
		{Name: "a", KernelArguments: []string{"nosmt", "quiet"}, Packages: []string{"chrony"}, SSHKeys: []SSHKeys{{"core", []string{key("a")}}}},
	})
	if len(vs) > 0 {
		t.Fatal(vs)
	}
	if diff := cmp.Diff(&model.ConfigOS{KernelArguments: []string{"nosmt", "quiet", "console=ttyS0"}}, c.OS); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"chrony", "vim"}, c.Packages); diff != "" {
		t.Error(diff)
	}
	if len(c.Files) != 2 || c.Files[0].Path != "/home/core/.ssh/authorized_keys" || c.Files[0].Owner != "core" || c.Files[0].Mode != 0o600 {
		t.Fatalf("%+v", c.Files)
	}
	want := "# Written by refit: NodeConfig.spec.sshAuthorizedKeys\n" + key("a") + "\n" + key("b") + "\n"
	if diff := cmp.Diff(want, string(c.Files[0].Data)); diff != "" {
		t.Error(diff)
	}
	if f := c.Fields(); f[model.FieldKernelArguments] != "nosmt quiet console=ttyS0" || f[model.FieldOSImage] != "" || c.DisruptionOf(model.FieldKernelArguments) != model.DisruptionReboot {
		t.Error(f)
	}
}
