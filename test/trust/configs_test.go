package trust

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/files"
	"github.com/refit-dev/refit/internal/model"
)

// disk has a node's files below a directory; its units are none of the machine's.
type disk struct {
	root    string
	updater *files.Updater
}

func (disk) Config(string) (string, bool) { return "", false }
func (disk) FindPayload(string, string) (updaters.Payload, error) {
	return updaters.Payload{}, updaters.ErrNoPayload
}
func (disk) Unit(context.Context, string) (systemd.Unit, error) { return systemd.Unit{}, nil }
func (disk) SetUnit(context.Context, string, string) error      { return nil }
func (disk) ReloadUnits(context.Context) error                  { return nil }
func (disk) RefreshUnit(context.Context, string, bool) error    { return nil }
func (disk) StartUnit(context.Context, string) error            { return nil }
func (d *disk) has(path string) bool {
	_, err := os.Stat(filepath.Join(d.root, path))
	return err == nil
}

// newDisk is the disk of a node on which runs of administrators wrote files once, that are
// gone now.
func newDisk(t *testing.T, dir string, wrote ...model.ConfigFile) *disk {
	t.Helper()
	d := &disk{root: filepath.Join(dir, "root")}
	record := map[string]map[string]map[string]string{"files": {}}
	for _, f := range wrote {
		if err := os.MkdirAll(filepath.Join(d.root, filepath.Dir(f.Path)), 0o755); err != nil {
			t.Fatal(err)
		}
		record["files"][f.Path] = map[string]string{"value": f.Value()}
	}
	b, err := json.Marshal(record)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "files.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.updater = files.New(d, d.root, filepath.Join(dir, "files.json"))
	return d
}

// stager notes what it is to make ready.
type stager struct{ prepared chan string }

func (s *stager) Prepare(_ context.Context, name string, _ *model.NodeConfig) error {
	s.prepared <- name
	return nil
}
func (s *stager) Drop(context.Context) error { return nil }

func fileOf(path, text string) model.ConfigFile {
	return model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte(text), Disruption: model.DisruptionNone}
}

// motd is in a NodeConfig; sudoers was once, and an administrator removed it.
var (
	motd    = fileOf("/etc/motd", "hello\n")
	sudoers = fileOf("/etc/sudoers.d/old", "ALL ALL=(ALL) NOPASSWD: ALL\n")
)

func configOf(c ...model.ConfigFile) model.NodeConfig {
	return model.NodeConfig{Version: model.ConfigVersion, Files: c}
}

func repairs(c model.NodeConfig) model.NodeConfig { c.Drift = model.DriftRepair; return c }

func problem(reason, says string) func(*v1alpha1.NodeUpdate) bool {
	return func(nu *v1alpha1.NodeUpdate) bool {
		for _, p := range nu.Status.Problems {
			if p.Reason == reason && strings.Contains(p.Message, says) {
				return p.Fix != ""
			}
		}
		return false
	}
}

// testConfigs: what is written on a node outside of a run is in an administrator's
// NodeConfig, and what is fetched ahead of one in an update that an administrator started.
func (s *site) testConfigs(t *testing.T) {
	ctx := context.Background()
	text := string(motd.Data)
	s.mustCreate(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "workers"}}})
	pool := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: v1alpha1.UpdatePoolSpec{Drift: v1alpha1.DriftReport, NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}}}}
	s.mustCreate(pool)
	s.mustCreate(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "welcome"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"workers"}, Files: []v1alpha1.NodeFile{{Path: motd.Path, Contents: &v1alpha1.FileContents{Inline: &text}}}}})
	follow := func(c model.NodeConfig) {
		t.Helper()
		name := s.content(v1alpha1.ContentConfig, c)
		if err := s.tell(func(n *v1alpha1.NodeUpdateSpec) { n.Config = name }); err != nil {
			t.Fatal(err)
		}
	}
	follow(repairs(configOf(sudoers)))
	s.until("a file that no NodeConfig has is refused", problem(v1alpha1.ReasonConfigNotApproved, sudoers.Path))
	s.event(v1alpha1.ReasonConfigNotApproved, sudoers.Path)
	follow(repairs(configOf(motd)))
	s.until("a repair that no UpdatePool wants is refused", problem(v1alpha1.ReasonConfigNotApproved, "drift: Repair"))
	if s.disk.has(sudoers.Path) || s.disk.has(motd.Path) {
		t.Error("the node wrote a file that only the controller named")
	}
	patch := client.MergeFrom(pool.DeepCopy())
	pool.Spec.Drift = v1alpha1.DriftRepair
	if err := s.admin.Patch(ctx, pool, patch); err != nil {
		t.Fatal(err)
	}
	s.until("what administrators want is repaired", func(*v1alpha1.NodeUpdate) bool { return s.disk.has(motd.Path) })
	s.until("the problem is over", func(nu *v1alpha1.NodeUpdate) bool { return !problem(v1alpha1.ReasonConfigNotApproved, "")(nu) })
	if s.disk.has(sudoers.Path) {
		t.Error("the node wrote a file that only the controller named")
	}
	evil := model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: "evil.example/os@" + model.DigestOf([]byte("evil"))}}
	name := s.content(v1alpha1.ContentConfig, evil)
	if err := s.tell(func(n *v1alpha1.NodeUpdateSpec) { n.Stage = name }); err != nil {
		t.Fatal(err)
	}
	s.until("an OS image of no plan is refused", problem(v1alpha1.ReasonConfigNotApproved, "no update that an administrator started"))
	select {
	case <-s.stager.prepared:
		t.Error("the node fetched an OS image that only the controller named")
	default:
	}
}

func (s *site) event(reason, says string) {
	s.t.Helper()
	s.until("an event with "+reason, func(*v1alpha1.NodeUpdate) bool {
		var all corev1.EventList
		if err := s.admin.List(context.Background(), &all); err != nil {
			s.t.Fatal(err)
		}
		for i := range all.Items {
			if all.Items[i].Reason == reason && strings.Contains(all.Items[i].Message, says) {
				return true
			}
		}
		return false
	})
}

// testUnnamedPlan: of a plan that no person named by its digest, the controller chooses the
// order of steps, and never what they write.
func (s *site) testUnnamedPlan(t *testing.T, digest string) {
	ctx := context.Background()
	m := metav1.ObjectMeta{Name: "mine"}
	s.refused("make an update of its own without a plan", s.thief.Create(ctx, &v1alpha1.ClusterUpdate{ObjectMeta: m, Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest, Start: v1alpha1.StartImmediate}}))
	started := &v1alpha1.ClusterUpdate{}
	if err := s.admin.Get(ctx, client.ObjectKey{Name: "u"}, started); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(started.DeepCopy())
	started.Spec.PlanDigest = ""
	s.refused("take the plan out of an update", s.thief.Patch(ctx, started, patch))
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "loose"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest, Start: v1alpha1.StartImmediate}}
	s.mustCreate(u)
	permit := func(step model.Step) {
		t.Helper()
		step.ID, step.By = "a", model.ByAgent
		p := model.Plan{Version: model.PlanVersion, Target: model.Target{Bundle: digest}, Nodes: []model.NodePlan{{Node: "n1", Steps: []model.Step{step}}}}
		if err := s.admin.Get(ctx, client.ObjectKey{Name: u.Name}, u); err != nil {
			t.Fatal(err)
		}
		now := metav1.NewTime(time.Now())
		u.Status.Plan, u.Status.PlanDigest, u.Status.StartedAt = s.text(v1alpha1.ContentPlan, string(p.JSON())), p.Digest(), &now
		if err := s.thief.Status().Update(ctx, u); err != nil {
			t.Fatal(err)
		}
		if err := s.tell(func(n *v1alpha1.NodeUpdateSpec) {
			n.Run = &v1alpha1.NodeRun{Name: u.Name, UID: string(u.UID), Bundle: digest, PlanDigest: p.Digest(), Attempt: 1, Steps: []v1alpha1.UpdateStep{{ID: "a", Updater: step.Updater, Verb: step.Verb, Params: step.Params}}}
		}); err != nil {
			t.Fatal(err)
		}
	}
	with := func(c model.NodeConfig) map[string]string {
		return map[string]string{model.ParamConfig: s.content(v1alpha1.ContentConfig, c)}
	}
	before := len(s.runner.started())
	cron := fileOf("/etc/cron.d/evil", "* * * * * root id\n")
	permit(model.Step{Updater: "files", Verb: "loose", Params: with(configOf(cron))})
	s.until("a file that no NodeConfig has is refused", stalled(v1alpha1.ReasonRunNotApproved, cron.Path))
	permit(model.Step{Updater: "os-image", Verb: "loose", Params: with(model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: "evil.example/os@" + model.DigestOf([]byte("other"))}})})
	s.until("an OS image that no OSImage has is refused", stalled(v1alpha1.ReasonRunNotApproved, "evil.example"))
	permit(model.Step{Updater: "os-image", Verb: "loose", Params: with(model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{KernelArguments: []string{"init=/tmp/evil"}}})})
	s.until("a kernel argument that no NodeConfig has is refused", stalled(v1alpha1.ReasonRunNotApproved, "init=/tmp/evil"))
	permit(model.Step{Updater: model.UpdaterStaticPod, Verb: "loose", Params: map[string]string{"namespace": "kube-system", "pod": "x", "to.c": "evil.example/x@" + model.DigestOf(nil)}})
	s.until("a static pod is refused", stalled(v1alpha1.ReasonRunNotApproved, "static pod"))
	if all := s.runner.started(); len(all) != before {
		t.Fatalf("started: %v", all[before:])
	}
	permit(model.Step{Updater: "files", Verb: "loose", Params: with(configOf(motd))})
	s.until("what NodeConfigs say runs", func(*v1alpha1.NodeUpdate) bool { return len(s.runner.started()) > before })
}
