package certificates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

const secret = "the private key of the API server"

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// simNode is a control plane whose certificates are files with the day they were
// made, and whose static pods are containers.
type simNode struct {
	dir      string
	config   string
	now      time.Time
	worker   bool
	settling int
	stopped  []string // static pods in the order in which they were stopped
	created  map[string]time.Time
	back     map[string]int // ticks until a stopped one is back
	left     int            // ticks until kubeadm ends
	argv     []string
	log, end string
	fails    bool
	cutOff   int // that many runs leave a key without its certificate
	unsafe   bool
	renewals int
}

func (n *simNode) Node() string                 { return "n1" }
func (n *simNode) Config(string) (string, bool) { return n.config, true }
func (n *simNode) CertificateFiles(name string) []string {
	return []string{filepath.Join(n.dir, name+".crt"), filepath.Join(n.dir, name+".key")}
}

// CertificateFiles: a certificate belongs to its key if both were made at once.
func (n *simNode) Certificate(name string) (kube.CertificateFiles, bool, error) {
	if n.worker && name != kube.KubeletClient {
		return kube.CertificateFiles{}, false, nil
	}
	crt, err := os.ReadFile(n.CertificateFiles(name)[0])
	if errors.Is(err, os.ErrNotExist) {
		return kube.CertificateFiles{}, false, nil
	}
	key, _ := os.ReadFile(n.CertificateFiles(name)[1])
	if string(key) != secret+string(crt) {
		return kube.CertificateFiles{}, true, fmt.Errorf("certificate %s: %w", name, kube.ErrBrokenCertificate)
	}
	made, err := time.Parse(time.RFC3339, string(crt))
	return kube.CertificateFiles{Made: made, NotAfter: made.AddDate(1, 0, 0), Written: made}, true, err
}

func (n *simNode) write(name string, made time.Time) {
	_ = fsutil.WriteFile(n.CertificateFiles(name)[1], []byte(secret+made.Format(time.RFC3339)), 0o600)
	_ = fsutil.WriteFile(n.CertificateFiles(name)[0], []byte(made.Format(time.RFC3339)), 0o600)
}

func (n *simNode) Kubeadm(context.Context) (string, error) { return "/usr/bin/kubeadm", nil }
func (n *simNode) Unsettled(context.Context) ([]string, error) {
	for p, left := range n.back {
		if left > 0 {
			return []string{"static pod " + p + " does not run"}, nil
		}
	}
	if n.settling > 0 {
		return []string{"the API server does not answer"}, nil
	}
	return nil, nil
}
func (n *simNode) EtcdUnsafe(context.Context) ([]string, error) {
	if n.unsafe {
		return []string{"of 3 etcd members 1 others are well, and 2 must be"}, nil
	}
	return nil, nil
}
func (n *simNode) Containers(context.Context) ([]cri.Container, error) {
	var out []cri.Container
	for p, at := range n.created {
		out = append(out, cri.Container{ID: p + at.String(), Pod: p + "-n1", Name: p, Running: n.back[p] == 0, Created: at})
	}
	return out, nil
}
func (n *simNode) StopContainer(_ context.Context, id string) error {
	for p, at := range n.created {
		if p+at.String() == id {
			for q, left := range n.back {
				if left > 0 {
					panic(q + " is not back, and " + p + " is stopped") // one at a time
				}
			}
			n.back[p] = 3
			n.stopped = append(n.stopped, p)
		}
	}
	return nil
}
func (n *simNode) RunDetached(_ context.Context, _, _, log, result string, argv []string) error {
	n.left, n.log, n.end, n.argv = 2, log, result, argv
	return nil
}
func (n *simNode) DetachedRuns(context.Context, string) (bool, error) { return n.left > 0, nil }

func (n *simNode) tick() {
	n.now = n.now.Add(time.Second)
	n.settling = max(0, n.settling-1)
	for p, left := range n.back {
		if left > 0 {
			n.back[p] = left - 1
			if left == 1 {
				n.created[p] = n.now
			}
		}
	}
	if n.left == 0 {
		return
	}
	if n.left--; n.left > 0 {
		return
	}
	name := n.argv[3]
	switch {
	case n.fails:
		_ = fsutil.WriteFile(n.log, []byte("error: no CA key\n"), 0o600)
		_ = fsutil.WriteFile(n.end, []byte(`{"exit":1}`), 0o600)
	case n.cutOff > 0: // a power cut between the key and its certificate
		n.cutOff--
		_ = fsutil.WriteFile(n.CertificateFiles(name)[1], []byte(secret+"half"), 0o600)
	default:
		if _, _, err := n.Certificate(name); err != nil {
			_ = fsutil.WriteFile(n.log, []byte("error: certificate cannot be parsed\n"), 0o600)
			_ = fsutil.WriteFile(n.end, []byte(`{"exit":1}`), 0o600)
			return
		}
		n.renewals++
		n.write(name, n.now)
		_ = fsutil.WriteFile(n.end, []byte(`{"exit":0}`), 0o600)
	}
}

func (n *simNode) state() string {
	var out []string
	for _, name := range append(kube.CertificateNames(), kube.KubeletClient) {
		if c, found, err := n.Certificate(name); err != nil {
			out = append(out, name+" broken")
		} else if found && c.Made.Before(t0) {
			out = append(out, name+" old")
		}
	}
	for p, at := range n.created {
		if at.Before(t0) {
			out = append(out, p+" as it ran")
		}
		if n.back[p] > 0 {
			out = append(out, p+" stopped")
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func config(certs ...model.ConfigCertificate) model.NodeConfig {
	return model.NodeConfig{Version: model.ConfigVersion, Certificates: certs}
}

func newNode(t *testing.T, c model.NodeConfig, names string) (*simNode, updaters.Task) {
	n := &simNode{dir: filepath.Join(t.TempDir(), "pki"), config: string(c.JSON()), now: t0, back: map[string]int{}, created: map[string]time.Time{}}
	old := t0.AddDate(0, -11, 0)
	for _, name := range append(kube.CertificateNames(), kube.KubeletClient) {
		n.write(name, old)
	}
	for _, p := range restartOrder {
		n.created[p] = old.Add(time.Hour)
	}
	dir := t.TempDir()
	return n, updaters.Task{UID: "u", Attempt: 1, Started: t0, Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "certificates", Updater: "certificates", Verb: "apply",
			Params: map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, n.config), ParamNames: names}}}
}

func make1(n *simNode) *Updater {
	u := New(n)
	u.now = func() time.Time { return n.now }
	return u
}

func fixture(t *testing.T) *updatertest.Fixture {
	c := config(model.ConfigCertificate{Name: "apiserver", NotBefore: "2026-11-20"}, model.ConfigCertificate{Name: "etcd-server", DaysLeft: 90})
	n, tk := newNode(t, c, "apiserver,etcd-server")
	f := &updatertest.Fixture{
		Make: func() updaters.Updater { return make1(n) }, Task: tk, Tick: n.tick, State: n.state, From: n.state(),
		Break: func() { n.fails = true }, Secrets: []string{secret},
	}
	f.To = strings.NewReplacer("apiserver old, ", "", "etcd as it ran, ", "", "etcd-server old, ", "", "kube-apiserver as it ran, ", "").Replace(f.From)
	in := updateplan.Input{}
	node := updateplan.Node{Name: "n1", ControlPlane: true, Config: &c, ConfigName: tk.Step.Params[model.ParamConfig]}
	covered := updateplan.Cover(updateplan.Builtin(), updateplan.Question{Input: &in, Node: node, Current: updateplan.Fields(make1(n).Fields(t.Context(), &c)), Desired: updateplan.Fields(c.Fields())})
	if len(covered.Steps) != 1 || len(covered.Left) > 0 {
		t.Fatalf("%+v", covered)
	}
	f.Planned = &covered.Steps[0]
	if diff := cmp.Diff(tk.Step.Params, f.Planned.Params); diff != "" {
		t.Fatal(diff)
	}
	return f
}

func TestConformance(t *testing.T) { updatertest.Conform(t, fixture) }

func drive(t *testing.T, n *simNode, tk updaters.Task) updaters.Result {
	t.Helper()
	u := make1(n)
	for range 2000 {
		r, err := u.Update(t.Context(), tk)
		if strings.Contains(fmt.Sprint(r, err), secret) {
			t.Fatal("a message has a key")
		}
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		n.tick()
	}
	return updaters.Result{Message: "no end"}
}

func TestRenewals(t *testing.T) {
	all := config(model.ConfigCertificate{Name: "all", DaysLeft: 90})
	t.Run("all of them: static pods restart one by one, each once, etcd first", func(t *testing.T) {
		n, tk := newNode(t, all, "all")
		if r := drive(t, n, tk); !r.Done {
			t.Fatal(r)
		}
		if fmt.Sprint(n.stopped) != fmt.Sprint(restartOrder) || n.renewals != len(kube.CertificateNames()) {
			t.Fatal(n.stopped, n.renewals)
		}
		if left, _ := filepath.Glob(filepath.Join(tk.Rollback, "*", "*")); len(left) > 0 {
			t.Fatalf("copies of keys were left: %v", left)
		}
	})
	t.Run("an unused certificate restarts nothing", func(t *testing.T) {
		n, tk := newNode(t, config(model.ConfigCertificate{Name: "admin.conf", DaysLeft: 90}), "admin.conf")
		if r := drive(t, n, tk); !r.Done || len(n.stopped) > 0 || n.renewals != 1 {
			t.Fatal(r, n.stopped, n.renewals)
		}
	})
	t.Run("young enough already: nothing is touched", func(t *testing.T) {
		n, tk := newNode(t, config(model.ConfigCertificate{Name: "all", NotBefore: "2025-12-01"}), "all")
		if r := drive(t, n, tk); !r.Done || len(n.stopped) > 0 || n.renewals != 0 {
			t.Fatal(r, n.stopped, n.renewals)
		}
	})
	t.Run("power cuts between key and certificate are repaired", func(t *testing.T) {
		n, tk := newNode(t, all, "all")
		n.cutOff = 2
		if r := drive(t, n, tk); !r.Done || strings.Contains(n.state(), "broken") {
			t.Fatal(r, n.state())
		}
	})
	t.Run("etcd waits for the others", func(t *testing.T) {
		n, tk := newNode(t, config(model.ConfigCertificate{Name: "etcd-peer", DaysLeft: 90}), "etcd-peer")
		n.unsafe = true
		r := drive(t, n, tk)
		if !r.Failed || len(n.stopped) > 0 || !strings.Contains(r.Message, "of 3 etcd members") {
			t.Fatal(r, n.stopped)
		}
	})
	t.Run("a worker has none of them", func(t *testing.T) {
		n, tk := newNode(t, all, "all")
		n.worker = true
		n.created = nil
		if r := drive(t, n, tk); !r.Done || n.renewals != 0 {
			t.Fatal(r)
		}
	})
	t.Run("the kubelet's own is only observed", func(t *testing.T) {
		n, tk := newNode(t, config(model.ConfigCertificate{Name: kube.KubeletClient, DaysLeft: 90}), kube.KubeletClient)
		if r := drive(t, n, tk); !r.Failed || n.renewals != 0 || !strings.Contains(r.Message, "kubelet renews its own") {
			t.Fatal(r)
		}
	})
}

// The values sort as the planner compares them: an unmet requirement is a difference,
// whichever requirement it is.
func TestFieldsAreDifferencesOrNot(t *testing.T) {
	for name, c := range map[string]struct {
		want model.ConfigCertificate
		ok   bool
	}{
		"made long ago":       {model.ConfigCertificate{Name: "apiserver", NotBefore: "2026-11-20"}, false},
		"young enough":        {model.ConfigCertificate{Name: "apiserver", NotBefore: "2025-01-01"}, true},
		"5 days left":         {model.ConfigCertificate{Name: "apiserver", DaysLeft: 5}, true},
		"90 days left":        {model.ConfigCertificate{Name: "apiserver", DaysLeft: 90}, false},
		"300 days of all":     {model.ConfigCertificate{Name: "all", DaysLeft: 300}, false},
		"both, one is not so": {model.ConfigCertificate{Name: "apiserver", NotBefore: "2025-01-01", DaysLeft: 100}, false},
	} {
		cfg := config(c.want)
		n, _ := newNode(t, cfg, c.want.Name)
		ds := updateplan.Differences(make1(n).Fields(t.Context(), &cfg), cfg.Fields())
		if (len(ds) == 0) != c.ok {
			t.Errorf("%s: %+v", name, ds)
		}
	}
	cfg := config(model.ConfigCertificate{Name: "all", DaysLeft: 5})
	n, _ := newNode(t, cfg, "all")
	_ = os.WriteFile(n.CertificateFiles("apiserver")[0], []byte("x"), 0o600)
	if ds := updateplan.Differences(make1(n).Fields(t.Context(), &cfg), cfg.Fields()); len(ds) != 1 {
		t.Error("a broken one is no difference")
	}
}
