package authority

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/model"
)

// people are the objects of administrators, and the Contents of the controller.
type people struct {
	unavailable bool
	updates     []v1alpha1.ClusterUpdate
	pools       []v1alpha1.UpdatePool
	images      []v1alpha1.OSImage
	configs     []v1alpha1.NodeConfig
	maps        map[string]*convert.ConfigMap
	contents    map[string]*v1alpha1.Content
	track       *v1alpha1.ImageTrack
}

func (p *people) ClusterUpdate(_ context.Context, name string) (*v1alpha1.ClusterUpdate, error) {
	for i := range p.updates {
		if p.updates[i].Name == name {
			return &p.updates[i], nil
		}
	}
	return nil, errors.New("not asked")
}

func (p *people) ImageTrack(context.Context, string) (*v1alpha1.ImageTrack, error) {
	return p.track, nil
}

func (p *people) Content(_ context.Context, name string) (*v1alpha1.Content, error) {
	if c := p.contents[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "contents"}, name)
}

func (p *people) ClusterUpdates(context.Context) ([]v1alpha1.ClusterUpdate, error) {
	if p.unavailable {
		return nil, errors.New("connection refused")
	}
	return p.updates, nil
}
func (p *people) NodeConfigs(context.Context) ([]v1alpha1.NodeConfig, error) { return p.configs, nil }
func (p *people) UpdatePools(context.Context) ([]v1alpha1.UpdatePool, error) { return p.pools, nil }
func (p *people) OSImages(context.Context) ([]v1alpha1.OSImage, error)       { return p.images, nil }
func (p *people) ConfigMap(_ context.Context, name string) (*convert.ConfigMap, error) {
	return p.maps[name], nil
}

func (p *people) NodeLabels(context.Context) (map[string]string, error) {
	if p.unavailable {
		return nil, errors.New("connection refused")
	}
	return map[string]string{"pool": "edge"}, nil
}

func image(name string) string { return "r.example/" + name + "@" + model.DigestOf([]byte(name)) }

// An OS image is fetched ahead of a run if an update that was started has it: in the plan
// that was approved by its digest, or where an OSImage names it.
func TestCheckStage(t *testing.T) {
	t.Parallel()
	boots := func(img string) (c model.NodeConfig, name string) {
		c = model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: img}}
		return c, v1alpha1.ContentName(v1alpha1.ContentConfig, string(c.JSON()))
	}
	c, name := boots(image("os"))
	planOf := func(node, config string) model.Plan {
		return model.Plan{Version: model.PlanVersion, Nodes: []model.NodePlan{{Node: node, Steps: []model.Step{{ID: "os", Updater: "os-image", By: model.ByAgent, Params: map[string]string{model.ParamConfig: config}}}}}}
	}
	good := planOf("n1", name)
	finished := func(p *people) {
		p.pools = []v1alpha1.UpdatePool{{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{OSImage: "edge-os", NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "edge"}}}}}
		p.images = []v1alpha1.OSImage{{ObjectMeta: metav1.ObjectMeta{Name: "edge-os"}, Spec: v1alpha1.OSImageSpec{Image: image("os")}}}
	}
	for what, x := range map[string]struct {
		plan    model.Plan
		spec    v1alpha1.ClusterUpdateSpec
		people  func(*people)
		refused string
	}{
		"in the plan that was approved":         {plan: good, spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, PlanDigest: good.Digest()}},
		"an update that is not started":         {plan: good, spec: v1alpha1.ClusterUpdateSpec{PlanDigest: good.Digest()}, refused: "no update that an administrator started"},
		"another plan was approved":             {plan: good, spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, PlanDigest: model.DigestOf(nil)}, refused: "another plan"},
		"another node's":                        {plan: planOf("n2", name), spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate}, refused: "no update"},
		"the update is not for this node":       {plan: good, spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, Nodes: []string{"n2"}}, refused: "no update"},
		"no digest, and no OSImage has it":      {plan: good, spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate}, refused: "no OSImage"},
		"no digest, and the pool's OSImage":     {plan: good, spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate}, people: finished},
		"the API server does not answer":        {plan: good, people: func(p *people) { p.unavailable = true }, refused: "connection refused"},
		"no digest, an OSImage of another pool": {plan: good, spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate}, people: func(p *people) { finished(p); p.pools[0].Spec.NodeSelector.MatchLabels["pool"] = "core" }, refused: "no OSImage"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			text := string(x.plan.JSON())
			plan := v1alpha1.ContentName(v1alpha1.ContentPlan, text)
			p := &people{contents: map[string]*v1alpha1.Content{plan: {Type: v1alpha1.ContentPlan, Data: text}},
				updates: []v1alpha1.ClusterUpdate{{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: x.spec, Status: v1alpha1.ClusterUpdateStatus{Plan: plan}}}}
			if x.people != nil {
				x.people(p)
			}
			v := CheckStage(t.Context(), p, "n1", name, &c)
			if (v == nil) != (x.refused == "") || v != nil && (!strings.Contains(v.Message, x.refused) || v.Fix == "" || v.Waiting != p.unavailable) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// The objects are merged as the controller merges them: of several NodeConfigs, for pools or
// by labels, with files of ConfigMaps.
func TestCheckConfigMerges(t *testing.T) {
	t.Parallel()
	inline := "a\n"
	p := &people{
		pools: []v1alpha1.UpdatePool{{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "edge"}}}}},
		maps:  map[string]*convert.ConfigMap{"files": {Data: map[string]string{"b": "b\n"}}},
		configs: []v1alpha1.NodeConfig{
			{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"edge"}, Files: []v1alpha1.NodeFile{{Path: "/etc/a", Contents: &v1alpha1.FileContents{Inline: &inline}}}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "labels"}, Spec: v1alpha1.NodeConfigSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "edge"}},
				Files: []v1alpha1.NodeFile{{Path: "/etc/b", Contents: &v1alpha1.FileContents{ConfigMap: &v1alpha1.ConfigMapKey{Name: "files", Key: "b"}}}}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"core"}, Files: []v1alpha1.NodeFile{{Path: "/etc/c", Contents: &v1alpha1.FileContents{Inline: &inline}}}}},
		}}
	file := func(path, text string) model.ConfigFile {
		return model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte(text)}
	}
	check := func(f ...model.ConfigFile) *model.Blocker {
		return CheckConfig(t.Context(), p, "c", &model.NodeConfig{Version: model.ConfigVersion, Files: f})
	}
	if v := check(file("/etc/a", "a\n"), file("/etc/b", "b\n")); v != nil {
		t.Errorf("%+v", v)
	}
	for _, f := range []model.ConfigFile{file("/etc/b", "a\n"), file("/etc/c", "a\n")} {
		if v := check(f); v == nil || v.Reason != v1alpha1.ReasonConfigNotApproved || !strings.Contains(v.Message, f.Path) {
			t.Errorf("%s: %+v", f.Path, v)
		}
	}
	p.configs[2].Spec.Pools, p.configs[2].Spec.Files[0].Path = nil, "/etc/a"
	if v := check(file("/etc/b", "b\n")); v == nil || !strings.Contains(v.Message, "result in no configuration") {
		t.Errorf("NodeConfigs in conflict: %+v", v)
	}
	p.unavailable = true
	if v := check(); v == nil || v.Reason != v1alpha1.ReasonApprovalUnreadable || !v.Waiting {
		t.Errorf("%+v", v)
	}
}

// A track gives a container another build of its own image, and of no other.
func TestATrackReplacesItsOwnImageOnly(t *testing.T) {
	t.Parallel()
	to := image("proxy")
	track := &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1alpha1.ImageTrackSpec{Repository: "r.example/proxy", Mode: "Write", Approvals: []v1alpha1.TrackApproval{{Digest: model.DigestOf([]byte("proxy"))}}}}
	run := func(was string) *v1alpha1.NodeRun {
		p := model.StaticPodImages{Namespace: "kube-system", Pod: "x", To: map[string]string{"c": to}, Was: map[string]string{"c": was}}
		return &v1alpha1.NodeRun{UID: "u-1", Steps: []v1alpha1.UpdateStep{{Updater: model.UpdaterStaticPod, Params: p.Params()}}}
	}
	p := model.StaticPodImages{}
	if unapproved, why := refusesTrack(run("r.example/proxy:1.0"), track, &p); why != "" || len(unapproved) > 0 {
		t.Error(why, unapproved)
	}
	for _, was := range []string{"r.example/vpn:1.0", "", "r.example/proxy-admin:1.0"} {
		if _, why := refusesTrack(run(was), track, &p); !strings.Contains(why, "not of the track's repository") {
			t.Errorf("%q: %q", was, why)
		}
	}
}

// What a container runs may get a name that cannot move without an approval. Any other
// image needs one, and a runtime that does not answer is waited for.
func TestATrackMayPinTheDigestThatRunsAlready(t *testing.T) {
	t.Parallel()
	const repo = "r.example/proxy"
	runs, other := model.DigestOf([]byte("runs")), model.DigestOf([]byte("other"))
	hangs := errors.New("DeadlineExceeded")
	for what, x := range map[string]struct {
		to      map[string]string
		was     string
		running map[string][]string
		err     error
		track   func(*v1alpha1.ImageTrackSpec)
		refused string
		waits   bool
		unasked bool
	}{
		"the digest that runs":                  {to: map[string]string{"c": repo + ":1.0-b1@" + runs}, running: map[string][]string{"c": {runs}}},
		"one of the digests of what runs":       {to: map[string]string{"c": repo + ":1.0-b1@" + runs}, running: map[string][]string{"c": {other, runs}}},
		"another digest":                        {to: map[string]string{"c": repo + ":1.0-b2@" + other}, running: map[string][]string{"c": {runs}}, refused: "no administrator approved " + repo + ":1.0-b2@" + other + ", and container c runs " + runs},
		"another digest that was approved":      {to: map[string]string{"c": repo + ":1.0-b2@" + other}, track: func(s *v1alpha1.ImageTrackSpec) { s.Approvals = []v1alpha1.TrackApproval{{Digest: other}} }, unasked: true},
		"another digest, and the track moves":   {to: map[string]string{"c": repo + ":1.0-b2@" + other}, track: func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{"Rebuild"} }, unasked: true},
		"only one of two containers runs it":    {to: map[string]string{"c": repo + "@" + runs, "d": repo + "@" + runs}, running: map[string][]string{"c": {runs}, "d": {other}}, refused: "container d runs " + other},
		"a container that was never created":    {to: map[string]string{"c": repo + "@" + runs}, refused: "was never created here"},
		"the runtime does not answer":           {to: map[string]string{"c": repo + "@" + runs}, err: hangs, refused: "container c of pod kube-system/x: DeadlineExceeded", waits: true},
		"the same bytes, the track is frozen":   {to: map[string]string{"c": repo + "@" + runs}, running: map[string][]string{"c": {runs}}, track: func(s *v1alpha1.ImageTrackSpec) { s.Freeze = true }, refused: "frozen", unasked: true},
		"the same bytes, the track proposes":    {to: map[string]string{"c": repo + "@" + runs}, running: map[string][]string{"c": {runs}}, track: func(s *v1alpha1.ImageTrackSpec) { s.Mode = "Propose" }, refused: "only proposes", unasked: true},
		"the same bytes, refused by the track":  {to: map[string]string{"c": repo + "@" + runs}, running: map[string][]string{"c": {runs}}, track: func(s *v1alpha1.ImageTrackSpec) { s.Refused = []v1alpha1.TrackRefusal{{Digest: runs}} }, refused: "refused by the track", unasked: true},
		"the same bytes of another repository":  {to: map[string]string{"c": "r.example/vpn@" + runs}, running: map[string][]string{"c": {runs}}, refused: "another repository", unasked: true},
		"in the place of another repository's":  {to: map[string]string{"c": repo + "@" + runs}, was: "r.example/vpn:1.0", running: map[string][]string{"c": {runs}}, refused: "not of the track's repository", unasked: true},
		"no digest, where nothing has a digest": {to: map[string]string{"c": repo + ":1.0"}, running: map[string][]string{"c": {""}}, refused: "no image with a digest", unasked: true},
		"a digest that what runs begins with":   {to: map[string]string{"c": repo + "@" + runs[:20]}, running: map[string][]string{"c": {runs}}, refused: "64 digits", unasked: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := model.StaticPodImages{Namespace: "kube-system", Pod: "x", To: x.to, Was: map[string]string{}}
			for c := range x.to {
				p.Was[c] = cmp.Or(x.was, repo+":1.0")
			}
			track := &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1alpha1.ImageTrackSpec{Repository: repo, Mode: "Write"}}
			if x.track != nil {
				x.track(&track.Spec)
			}
			asked := false
			running := func(_ context.Context, namespace, pod, container string) ([]string, error) {
				if asked = true; namespace != "kube-system" || pod != "x-n1" {
					t.Errorf("asked about pod %s/%s", namespace, pod)
				}
				return x.running[container], x.err
			}
			run := &v1alpha1.NodeRun{Name: v1alpha1.TrackRun + "t", UID: "u-1", Steps: []v1alpha1.UpdateStep{{Updater: model.UpdaterStaticPod, Params: p.Params()}}}
			v := CheckRun(t.Context(), &people{track: track}, running, "n1", run)
			if (v == nil) != (x.refused == "") || v != nil && (!strings.Contains(v.Message, x.refused) || v.Fix == "" || v.Waiting != x.waits || (v.Reason == v1alpha1.ReasonApprovalUnreadable) != x.waits) {
				t.Errorf("%+v", v)
			}
			if asked == x.unasked {
				t.Errorf("the runtime was asked: %v", asked)
			}
		})
	}
}
