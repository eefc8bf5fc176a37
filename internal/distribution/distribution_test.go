package distribution

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// node is a root directory that the test makes; a text is a file, "" a directory.
type node map[string]string

func (n node) root(t *testing.T) func(string) bool {
	t.Helper()
	root := t.TempDir()
	for p, text := range n {
		at := filepath.Join(root, p)
		dir := at
		if text != "" {
			dir = filepath.Dir(at)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return func(p string) bool {
		_, err := os.Stat(filepath.Join(root, p))
		return err == nil
	}
}

func with(parts ...node) node {
	out := node{}
	for _, p := range parts {
		for k, v := range p {
			out[k] = v
		}
	}
	return out
}

// nodes are what the installers of each distribution leave on a node, as their sources
// document it (Row.Source).
var (
	kubeadmWorker = node{"/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n",
		"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS\n",
		"/etc/kubernetes/kubelet.conf":                              "x", "/etc/kubernetes/manifests": "", "/etc/kubernetes/pki/ca.crt": "x",
		"/var/lib/kubelet/kubeadm-flags.env": "x", "/var/lib/kubelet/config.yaml": "x", "/usr/bin/kubeadm": "x"}
	kubeadmControlPlane = with(kubeadmWorker, node{"/etc/kubernetes/manifests/kube-apiserver.yaml": "x", "/etc/kubernetes/admin.conf": "x"})
	k3sAgent            = node{"/etc/systemd/system/k3s-agent.service": "x", "/usr/local/bin/k3s": "x",
		"/var/lib/rancher/k3s/agent/kubelet.kubeconfig": "x", "/var/lib/kubelet/pods": "", "/etc/rancher/node/password": "x"}
	k3sServer = node{"/etc/systemd/system/k3s.service": "x", "/usr/local/bin/k3s": "x", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig": "x",
		"/var/lib/rancher/k3s/server/token": "x", "/var/lib/rancher/k3s/server/tls": "", "/etc/rancher/k3s/k3s.yaml": "x", "/var/lib/kubelet/pods": ""}
	rke2Server = node{"/usr/local/lib/systemd/system/rke2-server.service": "x", "/usr/local/lib/systemd/system/rke2-agent.service": "x",
		"/usr/local/bin/rke2": "x", "/var/lib/rancher/rke2/agent/kubelet.kubeconfig": "x", "/var/lib/rancher/rke2/server/tls": "",
		"/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml": "x", "/var/lib/kubelet/pods": ""}
	rke2Agent = node{"/usr/lib/systemd/system/rke2-agent.service": "x", "/usr/bin/rke2": "x", "/var/lib/rancher/rke2/agent/kubelet.kubeconfig": "x"}
	k0sWorker = node{"/etc/systemd/system/k0sworker.service": "x", "/usr/local/bin/k0s": "x", "/var/lib/k0s/kubelet.conf": "x", "/var/lib/k0s/images": ""}
	k0sServer = node{"/etc/systemd/system/k0scontroller.service": "x", "/usr/local/bin/k0s": "x", "/var/lib/k0s/pki/ca.key": "x", "/var/lib/k0s/pki/admin.conf": "x"}
	eksNode   = node{"/opt/nodeadm/tracker": "x", "/etc/eks/kubelet/environment": "x", "/usr/local/bin/nodeadm": "x", "/etc/systemd/system/kubelet.service": "x",
		"/var/lib/kubelet/kubeconfig": "x", "/etc/kubernetes/kubelet/config.json": "x", "/etc/kubernetes/pki/ca.crt": "x"}
)

// Conformance: every row is found on the node that its installer makes, and only that row.
func TestRowsAreFound(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for name, c := range map[string]struct {
		node            node
		row, role, unit string
	}{
		"a worker of kubeadm":            {kubeadmWorker, Kubeadm, RoleAgent, KubeletUnit},
		"a control plane of kubeadm":     {kubeadmControlPlane, Kubeadm, RoleServer, KubeletUnit},
		"kubeadm without flags":          {node{"/var/lib/kubelet/instance-config.yaml": "x"}, Kubeadm, RoleAgent, ""},
		"an agent of k3s":                {k3sAgent, K3s, RoleAgent, "k3s-agent.service"},
		"a server of k3s":                {k3sServer, K3s, RoleServer, "k3s.service"},
		"a server of k3s, unit renamed":  {node{"/var/lib/rancher/k3s/agent/kubelet.kubeconfig": "x", "/var/lib/rancher/k3s/server/tls": ""}, K3s, RoleServer, ""},
		"k3s elsewhere":                  {node{"/etc/systemd/system/k3s.service": "x"}, K3s, RoleServer, "k3s.service"},
		"a server of RKE2 has both":      {rke2Server, RKE2, RoleServer, "rke2-server.service"},
		"an agent of RKE2":               {rke2Agent, RKE2, RoleAgent, "rke2-agent.service"},
		"a worker of k0s":                {k0sWorker, K0s, RoleAgent, "k0sworker.service"},
		"a controller of k0s":            {k0sServer, K0s, RoleServer, "k0scontroller.service"},
		"a hybrid node of EKS":           {eksNode, EKSHybrid, RoleAgent, KubeletUnit},
		"the program of k0s elsewhere":   {with(kubeadmWorker, node{"/usr/local/bin/k0s": "x", "/usr/local/bin/k3s": "x"}), Kubeadm, RoleAgent, KubeletUnit},
		"what k3s was configured to be":  {with(k0sWorker, node{"/etc/rancher/k3s/config.yaml": "x"}), K0s, RoleAgent, "k0sworker.service"},
		"kubeadm's packages next to k3s": {with(k3sAgent, node{"/usr/bin/kubeadm": "x", "/usr/lib/systemd/system/kubelet.service": "x"}), K3s, RoleAgent, "k3s-agent.service"},
	} {
		f, err := Detect(c.node.root(t))
		if err != nil || f.Row.Name != c.row || f.Role != c.role || f.Unit != c.unit || len(f.Seen) == 0 {
			t.Errorf("%s: %s %s %q by %v, %v", name, f.Row.Name, f.Role, f.Unit, f.Seen, err)
		}
		tested[c.row] = true
	}
	for _, r := range Rows() {
		if !tested[r.Name] {
			t.Errorf("no node of %s is tested", r.Name)
		}
	}
}

func TestTwoDistributionsAreRefused(t *testing.T) {
	t.Parallel()
	all := map[string]node{Kubeadm: kubeadmWorker, K3s: k3sAgent, RKE2: rke2Agent, K0s: k0sWorker, EKSHybrid: eksNode}
	for a := range all {
		for b := range all {
			if a >= b {
				continue
			}
			_, err := Detect(with(all[a], all[b]).root(t))
			var e *AmbiguousError
			if !errors.As(err, &e) || len(e.Names) != 2 || !slices.Contains(e.Names, a) || !slices.Contains(e.Names, b) ||
				!strings.Contains(err.Error(), a+" (/") || !strings.Contains(err.Error(), b+" (/") {
				t.Errorf("%s and %s: %v", a, b, err)
			}
		}
	}
}

func TestUnknownNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node node
		seen []string
	}{
		"no Kubernetes":          {node{"/etc/passwd": "x"}, nil},
		"a program without node": {node{"/usr/local/bin/k0s": "x"}, []string{"/usr/local/bin/k0s"}},
		"OpenShift": {node{"/etc/kubernetes/kubelet.conf": "x", "/etc/machine-config-daemon": "", "/var/lib/kubelet/config.json": "x", "/etc/systemd/system/kubelet.service": "x"},
			[]string{"/etc/kubernetes", "/etc/kubernetes/kubelet.conf", "/etc/machine-config-daemon", "/etc/systemd/system/kubelet.service", "/var/lib/kubelet"}},
		"packages of kubeadm, not joined": {node{"/usr/bin/kubeadm": "x", "/usr/lib/systemd/system/kubelet.service": "x"}, []string{"/usr/bin/kubeadm", "/usr/lib/systemd/system/kubelet.service"}},
	} {
		_, err := Detect(c.node.root(t))
		var e *UnknownError
		if !errors.As(err, &e) || !slices.Equal(e.Seen, c.seen) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, s := range c.seen {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not name %s", name, err, s)
			}
		}
	}
}

// For all sets of paths the answer is one row that it proves, or one of the two refusals.
func TestNoDistributionIsGuessed(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, r := range Rows() {
		paths = append(paths, slices.Concat(r.Marks, r.Hints, r.Server)...)
		for _, u := range slices.Concat(r.Servers, r.Agents) {
			for _, dir := range unitDirs {
				paths = append(paths, dir+u)
			}
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	rapid.Check(t, func(t *rapid.T) {
		there := map[string]bool{}
		for _, p := range rapid.SliceOfN(rapid.SampledFrom(paths), 0, 6).Draw(t, "paths") {
			there[p] = true
		}
		f, err := Detect(func(p string) bool { return there[p] })
		var a *AmbiguousError
		var u *UnknownError
		switch {
		case errors.As(err, &a):
			if len(a.Names) < 2 {
				t.Fatalf("%v", a)
			}
		case errors.As(err, &u):
		case err != nil || len(f.Seen) == 0:
			t.Fatalf("%s by nothing, %v", f.Row.Name, err)
		default:
			for _, s := range f.Seen {
				if !there[s] {
					t.Fatalf("%s by %s, which is not there", f.Row.Name, s)
				}
			}
		}
	})
}

// Rows are whole: what the agent needs of a node is there, and all paths are absolute and clean.
func TestRowsAreWhole(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, r := range Rows() {
		if names[r.Name] || r.Title == "" || r.Source == "" || len(r.Touches) == 0 || len(r.Agents) == 0 || len(r.Marks) == 0 || len(r.Programs) == 0 || len(r.VersionArgs) == 0 {
			t.Errorf("%s is not whole, or is there twice", r.Name)
		}
		names[r.Name] = true
		p := r.Places
		for what, at := range map[string]string{"socket": p.Socket, "identity": p.Kubeconfig, "kubelet": p.KubeletDir, "eviction limits": p.KubeletConfig, "store": p.RuntimeRoot} {
			if at == "" {
				t.Errorf("%s has no %s", r.Name, what)
			}
		}
		if r.Supervised && (p.Images == "" || p.DataDir == "" || r.Etcd == "" || r.SQLite == "") {
			t.Errorf("%s: a supervisor has a data directory with its datastores, and a directory of images", r.Name)
		}
		for _, at := range slices.Concat(r.Marks, r.Hints, r.Server, r.Programs) {
			if !path.IsAbs(at) || path.Clean(at) != at {
				t.Errorf("%s: %q is no clean path", r.Name, at)
			}
		}
		for _, x := range p.List() {
			if !path.IsAbs(x.Path) || path.Clean(x.Path) != x.Path {
				t.Errorf("%s: %s %q is no clean path", r.Name, x.What, x.Path)
			}
		}
		if n := reflect.ValueOf(Places{}).NumField(); len(filled().List()) != n {
			t.Errorf("List has %d of %d places", len(filled().List()), n)
		}
		if got, ok := ByName(r.Name); !ok || got.Title != r.Title {
			t.Errorf("%s is not found by its name", r.Name)
		}
		if r.Updates == strings.Contains(r.Does(), "does not update") {
			t.Errorf("%s: %s", r.Name, r.Does())
		}
	}
	if _, ok := ByName(""); ok {
		t.Error("the empty name is a row")
	}
}

// filled has a path in every place.
func filled() Places {
	var p Places
	v := reflect.ValueOf(&p).Elem()
	for i := range v.NumField() {
		v.Field(i).SetString("/data/x")
	}
	p.DataDir = "/data"
	return p
}

func TestPlacesMoveWithTheDataDirectory(t *testing.T) {
	t.Parallel()
	for _, x := range filled().Below("/mnt/k3s").List() {
		if x.Path != "/mnt/k3s" && x.Path != "/mnt/k3s/x" {
			t.Errorf("%s stays at %s", x.What, x.Path)
		}
	}
	p := k3s().Places.Below("/mnt/k3s")
	if p.Kubeconfig != "/mnt/k3s/agent/kubelet.kubeconfig" || p.Socket != "/run/k3s/containerd/containerd.sock" || p.Config != "/etc/rancher/k3s/config.yaml" {
		t.Errorf("%+v", p)
	}
	if kubeadm().Places.Below("/x") != kubeadm().Places {
		t.Error("kubeadm's places moved")
	}
	if other := (Places{DataDir: "/a", PKI: "/ab/c"}).Below("/x"); other.PKI != "/ab/c" {
		t.Errorf("a directory of a similar name moved: %+v", other)
	}
}

// A datastore that is named anywhere, by flag, key or environment, is found; a comment is none.
func TestNamesDatastore(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                                false,
		"# datastore-endpoint: x\n":       false,
		"  #datastore-endpoint: x\n":      false,
		"token: x\nwrite-kubeconfig: y\n": false,
		"datastore-endpoint: x":           true,
		"K3S_DATASTORE_ENDPOINT='x'\n":    true,
		"ExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--datastore-endpoint=x' \\\n": true,
		"storage:\n  type: etcd\n  etcd:\n    externalCluster: null\n":                    false,
		"storage:\n  type: etcd\n  etcd:\n    externalCluster:\n      endpoints: [x]\n":   true,
		"kine:\n  dataSource: sqlite://file:/var/lib/k0s/db/state.db?mode=rwc\n":          false,
		"kine: {dataSource: \"mysql://p\"}\n":                                             true,
		"kine:\n  dataSource: sqlite:///mnt/other.db\n":                                   true,
	} {
		if got := NamesDatastore("# first", text, "last: 1"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
