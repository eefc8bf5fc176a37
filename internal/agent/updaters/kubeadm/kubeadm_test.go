package kubeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// simNode is a control-plane node on which kubeadm takes five ticks.
type simNode struct {
	t         *testing.T
	path      string
	manifest  string
	settling  int // ticks until it is settled
	left      int // ticks until kubeadm ends, 0: it does not run
	log       string
	result    string
	argv      []string
	fails     bool
	refuses   int // that many runs are refused by preflight checks
	cutOff    int // that many runs vanish without a result
	lost      int // so many runs end because no API server answers
	away      int // ticks until the API server answers
	runs      int
	unsettled bool // never settles
	config    string
	worker    bool
	kubelet   simKubelet
	writes    string // the configuration that kubeadm writes
	etcd      *simEtcd
	tmp       string
}

// simEtcd is a member with a database of one line.
type simEtcd struct {
	n         *simNode
	data      string
	size      int64
	unsafe    []string
	cutOff    int
	snapshots int
}

func (e *simEtcd) Size(context.Context) (int64, error)      { return e.size, nil }
func (e *simEtcd) Unsafe(context.Context) ([]string, error) { return e.unsafe, nil }
func (e *simEtcd) Snapshot(_ context.Context, w io.Writer) error {
	if e.n.runs > 0 && e.n.manifest != "v1.35.4" {
		e.n.t.Error("a snapshot of what has moved already")
	}
	e.snapshots++
	if e.cutOff > 0 {
		e.cutOff--
		_, _ = io.WriteString(w, e.data[:3])
		return errors.New("etcd's snapshot was cut off")
	}
	_, err := io.WriteString(w, e.data)
	return err
}

func (n *simNode) Etcd(context.Context) (Etcd, error) {
	if n.etcd == nil || n.worker {
		return nil, nil
	}
	return n.etcd, nil
}
func (n *simNode) TempDir() string { return n.tmp }

func (n *simNode) ConfigFiles() []string               { return []string{n.config} }
func (n *simNode) KubeletService() servicerestart.Host { return &n.kubelet }

// simKubelet is a kubelet that reads its configuration when it starts.
type simKubelet struct {
	config  string // file
	read    string // what was read
	process int
}

func (*simKubelet) What() string { return "the kubelet" }
func (k *simKubelet) Process(context.Context) (string, error) {
	return fmt.Sprint(k.process), nil
}
func (k *simKubelet) Restart(context.Context) error {
	b, err := os.ReadFile(k.config)
	k.process++
	k.read = string(b)
	return err
}
func (*simKubelet) Unready(context.Context) string { return "" }
func (*simKubelet) Log(context.Context) string     { return "" }
func (*simKubelet) Containers(context.Context) ([]cri.Container, error) {
	return []cri.Container{{Pod: "p", Name: "c", ID: "1", Running: true}}, nil
}

func (n *simNode) Kubeadm(context.Context) (string, error) { return n.path, nil }
func (n *simNode) CgroupV1() bool                          { return true }
func (n *simNode) StaticPods() ([]kube.StaticPod, error) {
	var out []kube.StaticPod
	if n.worker {
		return nil, nil
	}
	for _, name := range []string{"etcd", kube.APIServer, "kube-controller-manager", "kube-scheduler"} {
		tag := n.manifest
		if name == "etcd" {
			tag = "3.6.8-0"
		}
		out = append(out, kube.StaticPod{Name: name, Containers: []kube.StaticContainer{{Name: name, Image: "registry.k8s.io/" + name + ":" + tag}}})
	}
	return out, nil
}
func (n *simNode) Unsettled(context.Context) ([]string, error) {
	if n.settling > 0 || n.unsettled {
		return []string{"the API server does not answer"}, nil
	}
	return nil, nil
}
func (n *simNode) APIAnswers(context.Context) error {
	if n.away > 0 {
		return errors.New("no answer")
	}
	return nil
}
func (n *simNode) RunDetached(_ context.Context, _, _, log, result string, argv []string) error {
	if n.left > 0 {
		return errors.New("it runs already")
	}
	if n.away > 0 {
		n.t.Error("kubeadm was started while no API server answers")
	}
	if n.settling > 0 {
		n.t.Error("kubeadm was started on a node that is not settled")
	}
	if b, _ := os.ReadFile(n.path); string(b) != "kubeadm v1.36.3" {
		n.t.Errorf("the old kubeadm was started: %s", b)
	}
	if n.etcd != nil && !n.worker && n.etcd.snapshots == 0 {
		n.t.Error("kubeadm was started without a snapshot of etcd")
	}
	n.runs++
	_ = os.MkdirAll(filepath.Join(n.tmp, fmt.Sprint("kubeadm-backup-etcd-", n.runs)), 0o700)
	n.left, n.log, n.result, n.argv = 5, log, result, argv
	return nil
}
func (n *simNode) DetachedRuns(context.Context, string) (bool, error) { return n.left > 0, nil }

func (n *simNode) tick() {
	n.settling, n.away = max(0, n.settling-1), max(0, n.away-1)
	if n.left == 0 {
		return
	}
	n.left--
	switch {
	case n.left == 2 && n.cutOff > 0: // a power cut
		n.cutOff--
		n.left, n.settling = 0, 4
	case n.left == 2:
		_ = fsutil.WriteFile(n.log, []byte("[upgrade] Running pre-flight checks\n[upgrade/apply] nearly there\n"), 0o600)
	case n.left == 0 && n.refuses > 0:
		n.refuses--
		_ = fsutil.WriteFile(n.log, []byte("\x1b[0;32mCGROUPS\x1b[0m: enabled\n[preflight] Some fatal errors occurred:\n\t[ERROR ContainerRuntimeVersion]: could not connect\nmore\n"), 0o600)
		_ = fsutil.WriteFile(n.result, []byte(`{"exit":1}`), 0o600)
	case n.left == 0 && n.lost > 0:
		n.lost--
		n.away = 4
		_ = fsutil.WriteFile(n.log, []byte("[upgrade] Reading configuration\nerror: unable to fetch the kubeadm-config ConfigMap: Get \"https://10.0.0.1:6443/api\": dial tcp 10.0.0.1:6443: connect: connection refused\n"), 0o600)
		_ = fsutil.WriteFile(n.result, []byte(`{"exit":1}`), 0o600)
	case n.left == 0 && n.fails:
		_ = fsutil.WriteFile(n.log, []byte("[upgrade] x\n\terror execution phase preflight: [ERROR ImagePull]\n"), 0o600)
		_ = fsutil.WriteFile(n.result, []byte(`{"exit":1}`), 0o600)
	case n.left == 0:
		n.manifest = "v1.36.3"
		_ = fsutil.WriteFile(n.config, []byte(cmp.Or(n.writes, "config v1.36.3")), 0o644)
		_ = fsutil.WriteFile(n.result, []byte(`{"exit":0}`), 0o600)
	}
}

func fixture(t *testing.T) (*updatertest.Fixture, *simNode) {
	dir := t.TempDir()
	n := &simNode{t: t, path: filepath.Join(dir, "usr", "kubeadm"), manifest: "v1.35.4", settling: 3, config: filepath.Join(dir, "config.yaml"), tmp: filepath.Join(dir, "tmp")}
	n.etcd = &simEtcd{n: n, data: "etcd v1.35.4", size: 100}
	payload := filepath.Join(dir, "payload")
	for path, text := range map[string]string{n.config: "config v1.35.4", n.path: "kubeadm v1.35.4", payload: "kubeadm v1.36.3"} {
		if err := fsutil.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := fsutil.Digest(payload)
	if err != nil {
		t.Fatal(err)
	}
	return &updatertest.Fixture{
		Make: func() updaters.Updater { return New(n) },
		Task: updaters.Task{UID: "u", Attempt: 1, Step: v1alpha1.UpdateStep{ID: "kubeadm", Updater: "kubeadm", Verb: VerbApply, From: "v1.35.4", To: "v1.36.3"},
			Started: time.Now(), Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
			Payload: func(string) (updaters.Payload, error) { return updaters.Payload{Path: payload, Digest: digest}, nil }},
		Tick:  n.tick,
		State: func() string { return n.manifest }, From: "v1.35.4", To: "v1.36.3",
		Break:   func() { n.fails = true },
		Planned: planned(t, true),
	}, n
}

// workerFixture is a node on which kubeadm changes the kubelet's configuration only.
func workerFixture(t *testing.T) *updatertest.Fixture {
	f, n := fixture(t)
	n.worker = true
	n.kubelet = simKubelet{config: n.config, read: "config v1.35.4"}
	f.Task.Step.Verb = VerbNode
	f.State = func() string {
		kubeadm, _ := os.ReadFile(n.path)
		config, _ := os.ReadFile(n.config)
		return string(kubeadm) + ", " + string(config)
	}
	f.From, f.To, f.Reversible = "kubeadm v1.35.4, config v1.35.4", "kubeadm v1.36.3, config v1.36.3", true
	f.Planned = planned(t, false)
	return f
}

// The running kubelet has loaded what was restored.
func TestAnUndoneConfigurationIsRead(t *testing.T) {
	f := workerFixture(t)
	if r := end(t, f); !r.Done {
		t.Fatalf("%+v", r)
	}
	k := &f.Make().(*Updater).host.(*simNode).kubelet
	if err := k.Restart(t.Context()); err != nil || k.read != "config v1.36.3" { // by the step that replaces it
		t.Fatalf("%q %v", k.read, err)
	}
	for range 10 {
		if r, err := f.Make().Undo(t.Context(), f.Task); err != nil || r.Failed {
			t.Fatalf("%+v %v", r, err)
		} else if r.Done {
			break
		}
	}
	if k.read != "config v1.35.4" || k.process != 2 {
		t.Fatalf("the kubelet has read %q and was restarted %d times", k.read, k.process)
	}
}

// planned is what the planner says of the step.
func planned(t *testing.T, controlPlane bool) *model.Step {
	in := updateplan.Input{Nodes: []updateplan.Node{{Name: "n1", ControlPlane: true, Kubelet: "v1.35.4", ControlPlaneVersion: "v1.35.4"}, {Name: "n2", Kubelet: "v1.35.4"}},
		Target: model.Target{Kubernetes: "v1.36.3"}, KubeadmVersion: "v1.35.4"}
	for _, np := range updateplan.Make(in).Plan.Nodes {
		for _, s := range np.Steps {
			if s.Updater == "kubeadm" && (np.Role == model.RoleControlPlane) == controlPlane {
				return &s
			}
		}
	}
	t.Fatal("no step is planned")
	return nil
}

func TestConformance(t *testing.T) {
	t.Run("control plane", func(t *testing.T) {
		updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture { f, _ := fixture(t); return f })
	})
	t.Run("worker", func(t *testing.T) { updatertest.Conform(t, workerFixture) })
}

func end(t *testing.T, f *updatertest.Fixture) updaters.Result {
	t.Helper()
	u := f.Make()
	for range 500 {
		r, err := u.Update(t.Context(), f.Task)
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		f.Tick()
	}
	t.Fatal("no end")
	return updaters.Result{}
}

func TestKubeadm(t *testing.T) {
	t.Run("it is asked once, with a configuration that forces nothing", func(t *testing.T) {
		f, n := fixture(t)
		if r := end(t, f); !r.Done || n.runs != 1 {
			t.Fatalf("%+v after %d runs", r, n.runs)
		}
		if got := strings.Join(n.argv[1:3], " "); got != "upgrade apply" {
			t.Fatalf("kubeadm %s", got)
		}
		b, err := os.ReadFile(n.argv[4])
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Kind  string `json:"kind"`
			Apply struct {
				KubernetesVersion, ImagePullPolicy string
				ForceUpgrade                       bool
				IgnorePreflightErrors              []string
			} `json:"apply"`
			Node struct{ ImagePullPolicy string } `json:"node"`
		}
		if err := yaml.UnmarshalStrict(b, &c); err != nil && !strings.Contains(err.Error(), "unknown field") {
			t.Fatal(err)
		}
		if c.Kind != "UpgradeConfiguration" || c.Apply.KubernetesVersion != "v1.36.3" || c.Apply.ForceUpgrade ||
			c.Apply.ImagePullPolicy != "IfNotPresent" || c.Node.ImagePullPolicy != "IfNotPresent" ||
			len(c.Apply.IgnorePreflightErrors) != 1 || c.Apply.IgnorePreflightErrors[0] != "SystemVerification" {
			t.Fatalf("configuration:\n%s", b)
		}
	})
	t.Run("cut off by a power cut it waits until the node is settled and begins again", func(t *testing.T) {
		f, n := fixture(t)
		n.cutOff = 2
		if r := end(t, f); !r.Done || n.runs != 3 {
			t.Fatalf("%+v after %d runs", r, n.runs)
		}
	})
	t.Run("cut off again and again it fails", func(t *testing.T) {
		f, n := fixture(t)
		n.cutOff = 100
		if r := end(t, f); !r.Failed || n.runs != maxStarts {
			t.Fatalf("%+v after %d runs", r, n.runs)
		}
	})
	t.Run("a failure has its last words, and a new attempt runs it again", func(t *testing.T) {
		f, n := fixture(t)
		n.fails = true
		r := end(t, f)
		if !r.Failed || r.Reason != v1alpha1.ReasonStepFailed || !strings.Contains(r.Message, "[ERROR ImagePull]") {
			t.Fatalf("%+v", r)
		}
		if r := end(t, f); !r.Failed || n.runs != 1 {
			t.Fatalf("the same attempt ran it again: %+v after %d runs", r, n.runs)
		}
		n.fails, n.settling = false, 5
		f.Task.Attempt = 2
		if r := end(t, f); !r.Done || n.runs != 2 {
			t.Fatalf("%+v after %d runs", r, n.runs)
		}
		f.Task.Attempt = 3
		if r := end(t, f); !r.Done || n.runs != 2 {
			t.Fatalf("what succeeded in this update was run again: %+v after %d runs", r, n.runs)
		}
	})
	t.Run("kubeadm says yes and the manifests say no: that is a failure", func(t *testing.T) {
		f, n := fixture(t)
		f.Task.Step.To = "v1.36.9"
		if r := end(t, f); !r.Failed || !strings.Contains(r.Message, "the manifest of") {
			t.Fatalf("%+v, manifest %s", r, n.manifest)
		}
	})
	t.Run("a node that does not settle is waited for, with the reason", func(t *testing.T) {
		f, n := fixture(t)
		n.unsettled = true
		u := f.Make()
		r, err := u.Update(t.Context(), f.Task)
		if err != nil || r.Done || r.Failed || r.Reason != v1alpha1.ReasonControlPlaneUnhealthy || n.runs != 0 {
			t.Fatalf("%+v %v, %d runs", r, err, n.runs)
		}
	})
}

// The keeper is a real process: what it writes is what the updater reads.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	log, result := filepath.Join(dir, "sub", "log"), filepath.Join(dir, "sub", "result")
	if r, err := systemd.ReadCommandResult(result); r != nil || err != nil {
		t.Fatalf("before the end: %v %v", r, err)
	}
	if err := systemd.RecordCommand(t.Context(), log, result, []string{"/bin/sh", "-c", "echo one; echo two >&2; exit 3"}); err != nil {
		t.Fatal(err)
	}
	r, err := systemd.ReadCommandResult(result)
	if err != nil || r.Exit != 3 || systemd.TailLog(log, 2) != "one\ntwo" {
		t.Fatalf("%+v %v, log %q", r, err, systemd.TailLog(log, 9))
	}
	if err := systemd.RecordCommand(t.Context(), log, result, []string{"/bin/sh", "-c", "kill -9 $$"}); err != nil {
		t.Fatal(err)
	}
	if r, _ := systemd.ReadCommandResult(result); r.Exit != 137 {
		t.Fatalf("killed: %+v", r)
	}
	if err := systemd.RecordCommand(t.Context(), log, result, []string{filepath.Join(dir, "absent")}); err != nil {
		t.Fatal(err)
	}
	if r, _ := systemd.ReadCommandResult(result); r.Exit != 127 || r.Error == "" {
		t.Fatalf("not there: %+v", r)
	}
}

func TestPreflightThatRefusesIsAskedAgainAFewTimes(t *testing.T) {
	t.Parallel()
	for refusals, want := range map[int]bool{1: true, preflightTries - 1: true, preflightTries: false} {
		f, n := fixture(t)
		n.refuses = refusals
		r := end(t, f)
		if r.Done != want || r.Failed == want {
			t.Errorf("%d refusals: %+v, want done %t", refusals, r, want)
		}
		if !want && !strings.Contains(r.Message, "[ERROR ContainerRuntimeVersion]: could not connect") {
			t.Errorf("the failure does not say what kubeadm complained of: %s", r.Message)
		}
		if strings.Contains(r.Message, "CGROUPS") || strings.Contains(r.Message, "\x1b") {
			t.Errorf("the failure has words that say nothing: %q", r.Message)
		}
	}
}

// If the API server is unavailable while kubeadm runs, the step waits for it, but not for ever.
func TestKubeadmThatLostTheAPIServerIsRunAgainWhenItAnswers(t *testing.T) {
	t.Parallel()
	for losses, want := range map[int]bool{1: true, maxStarts - 1: true, maxStarts: false} {
		f, n := fixture(t)
		n.lost = losses
		r := end(t, f)
		if r.Done != want || r.Failed == want {
			t.Errorf("%d losses: %+v, want done %t", losses, r, want)
		}
		if !want && !strings.Contains(r.Message, "connection refused") {
			t.Errorf("the failure does not say what kubeadm complained of: %s", r.Message)
		}
	}
	if lostAPIServer("error: couldn't upgrade control plane. kubeadm has tried to recover everything into the earlier state. Errors faced: dial tcp: connection refused") {
		t.Error("an apply that took itself back is run again without a person")
	}
}

func control(t *testing.T) (*updatertest.Fixture, *simNode, *Updater) {
	f, n := fixture(t)
	return f, n, New(n)
}

// ended calls until it ends.
func ended(t *testing.T, f *updatertest.Fixture, u *Updater) updaters.Result {
	t.Helper()
	for range 200 {
		r, err := u.Update(t.Context(), f.Task)
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		f.Tick()
	}
	return updaters.Result{Message: "no end"}
}

func snapshots(t *testing.T, f *updatertest.Fixture) []string {
	all, _ := filepath.Glob(filepath.Join(f.Task.Rollback, "etcd-*"))
	var out []string
	for _, a := range all {
		b, err := os.ReadFile(a)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, filepath.Base(a)+"="+string(b))
	}
	return out
}

// A snapshot is there, whole and named, before kubeadm is started.
func TestASnapshotOfEtcdComesFirst(t *testing.T) {
	t.Run("whole, also when the first one was cut off", func(t *testing.T) {
		f, n, u := control(t)
		n.etcd.cutOff = 3
		if r := ended(t, f, u); !r.Done {
			t.Fatal(r)
		}
		if got := fmt.Sprint(snapshots(t, f)); got != "[etcd-snapshot-1.db=etcd v1.35.4]" {
			t.Fatal(got)
		}
	})
	t.Run("no room: nothing is changed", func(t *testing.T) {
		f, n, u := control(t)
		n.etcd.size = 1 << 60
		r := ended(t, f, u)
		if !r.Failed || r.Reason != v1alpha1.ReasonInsufficientSpace || n.runs != 0 {
			t.Fatal(r, n.runs)
		}
		if b, _ := os.ReadFile(n.path); string(b) != "kubeadm v1.35.4" {
			t.Fatal("kubeadm was replaced")
		}
	})
	t.Run("no quorum without this node: it waits, and goes on", func(t *testing.T) {
		f, n, u := control(t)
		n.etcd.unsafe = []string{"of 3 etcd members 1 others are well, and 2 must be"}
		if r := ended(t, f, u); r.Message != "no end" || n.runs != 0 {
			t.Fatal(r, n.runs)
		}
		r, err := u.Update(t.Context(), f.Task)
		if err != nil || r.Reason != v1alpha1.ReasonControlPlaneUnhealthy || !strings.Contains(r.Message, "of 3 etcd members") {
			t.Fatal(r, err)
		}
		n.etcd.unsafe = nil
		if r := ended(t, f, u); !r.Done {
			t.Fatal(r)
		}
	})
	t.Run("of many attempts the first and the last stay", func(t *testing.T) {
		f, n, u := control(t)
		n.fails = true
		for attempt := range 4 {
			f.Task.Attempt = int32(attempt + 1)
			n.etcd.data = fmt.Sprint("etcd ", attempt+1)
			if r := ended(t, f, u); !r.Failed {
				t.Fatal(r)
			}
		}
		if got := fmt.Sprint(snapshots(t, f)); got != "[etcd-snapshot-1.db=etcd 1 etcd-snapshot-4.db=etcd 4]" {
			t.Fatal(got)
		}
	})
	t.Run("a worker has none", func(t *testing.T) {
		f := workerFixture(t)
		if r := ended(t, f, f.Make().(*Updater)); !r.Done || len(snapshots(t, f)) > 0 {
			t.Fatal(r, snapshots(t, f))
		}
	})
}

// After success, what this run's kubeadm left behind is removed; nothing else is, and
// nothing that may help to repair a failed run.
func TestWhatKubeadmLeavesBehind(t *testing.T) {
	f, n, u := control(t)
	for _, d := range []string{"kubeadm-backup-etcd-2020", "by-hand"} {
		if err := os.MkdirAll(filepath.Join(n.tmp, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		var out []string
		entries, _ := os.ReadDir(n.tmp)
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return strings.Join(out, " ")
	}
	n.fails = true
	if r := ended(t, f, u); !r.Failed || left() != "by-hand kubeadm-backup-etcd-1 kubeadm-backup-etcd-2020" {
		t.Fatal(r, left())
	}
	n.fails = false
	f.Task.Attempt = 2
	if r := ended(t, f, u); !r.Done || left() != "by-hand kubeadm-backup-etcd-2020" {
		t.Fatal(r, left())
	}
}
