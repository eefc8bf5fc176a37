package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// simControlPlane is a node whose kubelet runs the manifests of a directory, some
// ticks after it starts or a manifest changes.
type simControlPlane struct {
	t       *testing.T
	dir     string
	running map[string]string // pod: image tag
	kubelet string            // version of the process, "" if it does not run
	delay   int               // ticks until the kubelet has acted
	busy    map[string]int    // ticks until a command ends, by unit
	ends    map[string]func() // what it does then
	ran     []string          // commands in their order
	stops   int               // of the kubelet
	ended   []string          // pods that the exchange ended
	longest int64             // time that one was given, in seconds
	endings sync.Mutex
	away    time.Duration // that the clock has moved on
	etcd    *simEtcd
	broken  bool // the new API server never serves
	refuses bool // preflight checks refuse
	failsAt string
	stuck   string // a pod that stays as it is
	newEtcd string // version in the new manifest
	cluster string // kubeadm's ClusterConfiguration
	// writeManifests runs the commands that write manifests; nil: they are simulated.
	writeManifests func(ctx context.Context, argv []string) error
}

func (n *simControlPlane) path(p string) string { return filepath.Join(n.dir, p) }

func manifestText(pod, tag string) []byte {
	return fmt.Appendf(nil, "metadata:\n  name: %s\n  namespace: kube-system\n  annotations:\n    %s: 10.0.0.1:6443\nspec:\n  containers:\n  - name: %s\n    image: registry.k8s.io/%s:%s\n", pod, endpointAnnotation, pod, pod, tag)
}

func (n *simControlPlane) Kubeadm(context.Context) (string, error) { return n.path("kubeadm"), nil }
func (n *simControlPlane) Kubelet(context.Context) (string, error) { return n.path("kubelet"), nil }
func (n *simControlPlane) Kubectl() string                         { return "" }
func (n *simControlPlane) Manifests() string                       { return n.path("manifests") }
func (n *simControlPlane) StaticPods() ([]kube.StaticPod, error) {
	return kube.StaticPods(n.Manifests())
}
func (n *simControlPlane) KubeletService() servicerestart.Host { return nil }
func (n *simControlPlane) ConfigFiles() []string               { return []string{n.path("config.yaml")} }
func (n *simControlPlane) Etcd(context.Context) (Etcd, error)  { return n.etcd, nil }
func (n *simControlPlane) TempDir() string                     { return n.path("tmp") }
func (n *simControlPlane) CgroupV1() bool                      { return false }
func (n *simControlPlane) Node() string                        { return "n1" }
func (n *simControlPlane) KubeletStarted(context.Context) (time.Time, error) {
	return time.Time{}, nil
}
func (n *simControlPlane) KubeletHealthy(context.Context) error { return nil }
func (n *simControlPlane) PodLog(pod string) string             { return pod + " says: unknown flag" }
func (n *simControlPlane) ExchangeCommand(file string) []string { return []string{"exchange", file} }
func (n *simControlPlane) NodeReady(context.Context) (bool, string, error) {
	return true, n.kubelet, nil
}
func (n *simControlPlane) ClusterConfiguration(context.Context) (string, error) {
	return n.cluster, nil
}
func (n *simControlPlane) Running(context.Context) (string, bool, error) {
	b, err := os.ReadFile(n.path("kubelet"))
	return n.kubelet, n.kubelet != "" && string(b) != "kubelet "+n.kubelet, err
}
func (n *simControlPlane) serves() bool {
	return n.running["etcd"] != "" && n.running[kube.APIServer] != "" && (!n.broken || n.running[kube.APIServer] == "v1.35.4")
}
func (n *simControlPlane) APIReady(context.Context) error {
	if !n.serves() {
		return errors.New("the API server does not answer")
	}
	return nil
}
func (n *simControlPlane) APIAnswers(ctx context.Context) error { return n.APIReady(ctx) }
func (n *simControlPlane) APIVersion(ctx context.Context) (string, error) {
	return n.running[kube.APIServer], n.APIReady(ctx)
}
func (n *simControlPlane) Unsettled(ctx context.Context) ([]string, error) {
	problems, _, err := StaticPods(ctx, n)
	if away := n.APIReady(ctx); away != nil {
		problems = append(problems, away.Error())
	}
	return problems, err
}
func (n *simControlPlane) Containers(context.Context) ([]cri.Container, error) {
	var out []cri.Container
	for pod, tag := range n.running {
		out = append(out, cri.Container{Pod: pod + "-n1", Name: pod, ImageID: pod + ":" + tag, ID: pod + tag, Running: true})
	}
	return out, nil
}
func (n *simControlPlane) ImageID(_ context.Context, name string) (string, error) {
	return path.Base(name), nil
}

func (n *simControlPlane) Start(context.Context, string) error {
	b, err := os.ReadFile(n.path("kubelet"))
	n.kubelet, n.delay = strings.TrimPrefix(string(b), "kubelet "), 3
	return err
}
func (n *simControlPlane) Stop(context.Context, string) error {
	n.kubelet = ""
	n.stops++
	return nil
}

// EndPod records what ends.
func (n *simControlPlane) EndPod(_ context.Context, pod EndedPod) error {
	n.endings.Lock()
	defer n.endings.Unlock()
	if n.kubelet != "" {
		n.t.Errorf("%s ends while the kubelet would start it again", pod.Name)
	}
	n.ended = append(n.ended, pod.Name)
	n.longest = max(n.longest, pod.GraceSeconds)
	return nil
}

func (n *simControlPlane) DetachedRuns(_ context.Context, unit string) (bool, error) {
	return n.busy[unit] > 0, nil
}

func (n *simControlPlane) RunDetached(ctx context.Context, unit, _, log, result string, argv []string) error {
	n.ran = append(n.ran, strings.TrimSuffix(strings.TrimPrefix(unit, "refit-run-control-plane-"), ".service"))
	exit := 0
	switch words := strings.Join(argv, " "); {
	case argv[0] == "exchange":
		x, err := ReadExchange(argv[1])
		if err != nil {
			return err
		}
		if n.failsAt == "exchange" {
			exit = 1
		} else if err := x.Run(ctx, n); err != nil {
			return err
		}
		n.delay = 3
	case strings.Contains(words, "preflight"):
		if n.etcd.snapshots == 0 {
			n.t.Error("kubeadm runs without a snapshot of etcd")
		}
		if n.refuses {
			exit = 1
			_ = fsutil.WriteFile(log, []byte("[preflight] Some fatal errors occurred:\n\t[ERROR CoreDNSUnsupportedPlugins]: x\n"), 0o600)
		}
	case n.writeManifests != nil && strings.Contains(words, "init phase"):
		if err := n.writeManifests(ctx, argv); err != nil {
			return err
		}
	case strings.Contains(words, "init phase control-plane"):
		dir := strings.TrimPrefix(argv[1], "KUBEADM_INIT_DRYRUN_DIR=")
		for _, p := range controlPlanePods {
			_ = fsutil.WriteFile(manifestPath(dir, p), manifestText(p, "v1.36.3"), 0o600)
		}
		if n.failsAt == "manifests" {
			_ = os.Remove(manifestPath(dir, "kube-scheduler"))
		}
	case strings.Contains(words, "init phase etcd"):
		_ = fsutil.WriteFile(manifestPath(strings.TrimPrefix(argv[1], "KUBEADM_INIT_DRYRUN_DIR="), etcdPod), manifestText(etcdPod, n.newEtcd), 0o600)
	}
	n.busy[unit] = 2
	n.ends[unit] = func() { _ = fsutil.WriteFile(result, fmt.Appendf(nil, `{"exit":%d}`, exit), 0o600) }
	return nil
}

func (n *simControlPlane) tick() {
	n.away += 10 * time.Second
	for unit, left := range n.busy {
		if left == 1 {
			n.ends[unit]()
		}
		n.busy[unit] = max(0, left-1)
	}
	if n.delay = max(0, n.delay-1); n.delay > 0 || n.kubelet == "" {
		return
	}
	pods, err := n.StaticPods()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range pods {
		if p.Name == n.stuck {
			continue
		}
		n.running[p.Name] = kube.Tag(p.Containers[0].Image)
	}
}

func (n *simControlPlane) state() string {
	kubelet, _ := os.ReadFile(n.path("kubelet"))
	pods, _ := n.StaticPods()
	var out []string
	for _, p := range pods {
		out = append(out, kube.Tag(p.Containers[0].Image))
	}
	return strings.Join(out, " ") + ", " + string(kubelet) + ", runs " + n.kubelet
}

func controlPlaneFixture(t *testing.T, verb string) (*updatertest.Fixture, *simControlPlane) {
	return controlPlaneFixtureIn(t, verb, t.TempDir())
}

func controlPlaneFixtureIn(t *testing.T, verb, dir string) (*updatertest.Fixture, *simControlPlane) {
	n := &simControlPlane{t: t, dir: dir, running: map[string]string{}, kubelet: "v1.35.4", newEtcd: "3.6.8-0", busy: map[string]int{}, ends: map[string]func(){},
		cluster: "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.4\n"}
	n.etcd = &simEtcd{n: &simNode{t: t, manifest: "v1.35.4"}, data: "etcd v1.35.4", size: 100}
	files := map[string]string{"kubeadm": "kubeadm v1.35.4", "kubelet": "kubelet v1.35.4", "config.yaml": "config v1.35.4",
		"payload/kubeadm": "kubeadm v1.36.3", "payload/kubelet": "kubelet v1.36.3", "manifests/etcd.yaml": string(manifestText(etcdPod, "3.6.4-0"))}
	for _, p := range controlPlanePods {
		files["manifests/"+p+".yaml"] = string(manifestText(p, "v1.35.4"))
	}
	for path, text := range files {
		if err := fsutil.WriteFile(n.path(path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.tick()
	to := "3.6.8-0 v1.36.3 v1.36.3 v1.36.3, kubelet v1.36.3, runs v1.36.3"
	if verb == VerbPods {
		to = "3.6.8-0 v1.36.3 v1.36.3 v1.36.3, kubelet v1.35.4, runs v1.35.4"
	}
	return &updatertest.Fixture{
		Make: func() updaters.Updater {
			u := NewControlPlane(n)
			u.now = func() time.Time { return time.Now().Add(n.away) }
			return u
		},
		Task: updaters.Task{UID: "u", Attempt: 1, Step: v1alpha1.UpdateStep{ID: "control-plane", Updater: "control-plane", Verb: verb, From: "v1.35.4", To: "v1.36.3"},
			Started: time.Now(), Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
			Payload: func(name string) (updaters.Payload, error) {
				d, err := fsutil.Digest(n.path("payload/" + name))
				if errors.Is(err, os.ErrNotExist) {
					err = updaters.ErrNoPayload
				}
				return updaters.Payload{Path: n.path("payload/" + name), Digest: d}, err
			}},
		Tick:  n.tick,
		State: n.state, From: "3.6.4-0 v1.35.4 v1.35.4 v1.35.4, kubelet v1.35.4, runs v1.35.4", To: to,
		Break:   func() { n.refuses = true },
		Planned: plannedControlPlane(t, verb),
	}, n
}

func plannedControlPlane(t *testing.T, verb string) *model.Step {
	in := updateplan.Input{Nodes: []updateplan.Node{{Name: "n1", ControlPlane: true, Kubelet: "v1.35.4", ControlPlaneVersion: "v1.35.4"}},
		Target: model.Target{Kubernetes: "v1.36.3"}, KubeadmVersion: "v1.35.4"}
	if verb == VerbPods {
		in.Nodes[0].Kubelet = "v1.36.3"
	}
	for _, s := range updateplan.Make(in).Plan.Nodes[0].Steps {
		if s.Updater == "control-plane" {
			return &s
		}
	}
	t.Fatal("no step is planned")
	return nil
}

func TestControlPlaneConformance(t *testing.T) {
	for _, verb := range []string{VerbTogether, VerbPods} {
		t.Run(verb, func(t *testing.T) {
			updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture { f, _ := controlPlaneFixture(t, verb); return f })
		})
	}
}

func TestControlPlane(t *testing.T) {
	t.Run("all is prepared while the old one serves, and the kubelet stops once", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		if r := end(t, f); !r.Done || n.stops != 1 {
			t.Fatalf("%+v after %d stops of the kubelet", r, n.stops)
		}
		if want := []string{"preflight", "manifests", "manifest-etcd", "certificates", "kubelet-flags", "exchange-0"}; !slices.Equal(n.ran, want) {
			t.Fatalf("ran %q, want %q", n.ran, want)
		}
	})
	t.Run("the API server ends before etcd, and a kubelet that is at the version stays", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbPods)
		if r := end(t, f); !r.Done || n.state() != f.To || n.stops != 1 {
			t.Fatalf("%+v, %s after %d stops of the kubelet", r, n.state(), n.stops)
		}
		if want := []string{"etcd-n1", "kube-apiserver-n1", "kube-controller-manager-n1", "kube-scheduler-n1"}; n.ended[0] != want[1] || !slices.Equal(slices.Sorted(slices.Values(n.ended)), want) {
			t.Fatalf("ended %q, want %q, the API server first", n.ended, want)
		}
	})
	for value, want := range map[string]int64{"5s": 15, "10m": 30, "soon": 10} {
		t.Run("the API server goes on serving for its own delay "+value, func(t *testing.T) {
			f, n := controlPlaneFixture(t, VerbTogether)
			f.Task.Step.Params = map[string]string{model.ParamOthersServe: model.ParamYes}
			text := string(manifestText(kube.APIServer, "v1.35.4")) + "    command: [kube-apiserver, --shutdown-delay-duration=" + value + "]\n"
			if err := fsutil.WriteFile(manifestPath(n.Manifests(), kube.APIServer), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := end(t, f); !r.Done || n.longest != want {
				t.Fatalf("%+v, %d s, want %d", r, n.longest, want)
			}
		})
	}
	t.Run("a new minor release of the kubelet starts all static pods anew, so they end before", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		n.newEtcd = "3.6.4-0" // as it is
		if r := end(t, f); !r.Done || n.longest != graceOthers || !slices.Contains(n.ended, "etcd-n1") || n.ended[0] != "kube-apiserver-n1" {
			t.Fatalf("%+v, ended %q within %d s", r, n.ended, n.longest)
		}
	})
	t.Run("a patch release leaves an unchanged etcd alone", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		n.newEtcd, n.kubelet = "3.6.4-0", "v1.36.1"
		if r := end(t, f); !r.Done || slices.Contains(n.ended, "etcd-n1") || len(n.ended) != len(controlPlanePods) {
			t.Fatalf("%+v, ended %q", r, n.ended)
		}
	})
	t.Run("an API server that never serves is replaced by the old one, with the newer etcd", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		n.broken = true
		r := end(t, f)
		if !r.Failed || !strings.Contains(r.Message, "the old control plane was restored and serves") || !strings.Contains(r.Message, "unknown flag") {
			t.Fatalf("%+v", r)
		}
		if want := "3.6.8-0 v1.35.4 v1.35.4 v1.35.4, kubelet v1.35.4, runs v1.35.4"; n.state() != want || !n.serves() {
			t.Fatalf("at %q, serves %v", n.state(), n.serves())
		}
		if r := undoToEnd(t, f); !r.Done {
			t.Fatalf("undo after that: %+v", r)
		}
	})
	t.Run("what has served is not replaced by the old one", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		n.stuck = "kube-scheduler"
		r := end(t, f)
		if !r.Failed || !strings.Contains(r.Message, "is not restored") || !strings.Contains(r.Message, "kube-scheduler") || n.state() != f.To {
			t.Fatalf("%+v at %q", r, n.state())
		}
	})
	t.Run("an older etcd replaces no newer one", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		n.newEtcd = "3.6.1-0"
		if r := end(t, f); !r.Done || n.running[etcdPod] != "3.6.4-0" || n.running[kube.APIServer] != "v1.36.3" {
			t.Fatalf("%+v at %q", r, n.state())
		}
	})
	t.Run("manifests that kubeadm did not write replace nothing", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		n.failsAt = "manifests"
		if r := end(t, f); !r.Failed || !strings.Contains(r.Message, "kubeadm wrote no manifest of kube-scheduler") || n.state() != f.From {
			t.Fatalf("%+v at %q", r, n.state())
		}
		if r := undoToEnd(t, f); !r.Done {
			t.Fatalf("undo before the exchange: %+v", r)
		}
	})
	t.Run("an exchange that fails again and again ends with the old control plane", func(t *testing.T) {
		f, n := controlPlaneFixture(t, VerbTogether)
		n.failsAt = "exchange"
		if r := end(t, f); !r.Failed || n.state() != f.From {
			t.Fatalf("%+v at %q", r, n.state())
		}
	})
}

func undoToEnd(t *testing.T, f *updatertest.Fixture) updaters.Result {
	t.Helper()
	for range 50 {
		r, err := f.Make().Undo(t.Context(), f.Task)
		if err != nil {
			t.Fatal(err)
		}
		if r.Done || r.Failed {
			return r
		}
		f.Tick()
	}
	t.Fatal("no end")
	return updaters.Result{}
}

// After the step control-plane, kubeadm does the rest: it leaves out what that step did,
// and the kubelet that runs already reads a configuration that kubeadm has changed.
func TestTheRestOfAnUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		config   string // what kubeadm writes
		restarts int
	}{
		"another configuration restarts the kubelet": {"config v1.36.3", 1},
		"the same configuration does not":            {"config v1.35.4", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, n := fixture(t)
			n.kubelet, n.writes = simKubelet{config: n.config, read: "config v1.35.4"}, c.config
			if err := fsutil.WriteFile(replacedMarker(f.Task), []byte("v1.36.3"), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := end(t, f); !r.Done || n.kubelet.process != c.restarts || n.kubelet.read != c.config {
				t.Fatalf("%+v after %d restarts of the kubelet, which has read %q", r, n.kubelet.process, n.kubelet.read)
			}
			b, err := os.ReadFile(n.argv[4])
			if err != nil || strings.Count(string(b), "skipPhases:\n  - preflight\n  - control-plane\n") != 2 {
				t.Fatalf("%v, configuration:\n%s", err, b)
			}
		})
	}
}
