package gatefacts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/contents"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Only nodes that boot another image by the plan are asked about; an image that is not
// counted is not prepulled.
func TestOSImagesOfThePlan(t *testing.T) {
	step := func(path string) []model.Step {
		return []model.Step{{ID: "os-image", Updater: "os-image", Changes: []model.Change{{Path: path}}}}
	}
	m := MovesOf(model.Plan{Nodes: []model.NodePlan{
		{Node: "n1", Pool: "edge", Steps: step(model.FieldOSImage)}, {Node: "n2", Pool: "edge", Steps: step(model.FieldOSImage)},
		{Node: "n3", Pool: "edge", Steps: step(model.FieldKernelArguments)}, {Node: "n4", Pool: "new", Steps: step(model.FieldOSImage)}}})
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{
		{Name: "edge", Image: "r/os@sha256:1", Prepulled: "7/9", Missing: []string{"n2", "n3"}, PrepullReason: "ImagesMissing", PrepullMessage: "they are fetching it"},
		{Name: "new", Image: "r/os@sha256:1"}, {Name: "other", Image: "r/os@sha256:1", Prepulled: "0/9"}}}}
	got, err := readOSImages(context.Background(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).Build(), nil, m.booting, &gate.Input{})
	if err != nil {
		t.Fatal(err)
	}
	want := []gate.OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 2, Ready: 1, Reason: "ImagesMissing", Message: "they are fetching it", Reading: true},
		{Pool: "new", Image: "r/os@sha256:1", Nodes: 1, Message: "nothing is known of it yet", Reading: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A failed build is a matter of the pools in the plan alone. A pool that is pinned to a build does not
// wait for another. A build that was not started has no name.
func TestFailedBuildsOfThePlan(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pool := func(name, image, build string) v1alpha1.UpdatePool {
		return v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpdatePoolSpec{OSImage: image, OSBuild: build}}
	}
	build := func(name, phase string) *v1alpha1.OSBuild {
		return &v1alpha1.OSBuild{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.OSBuildStatus{Phase: phase}}
	}
	o := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "os"}, Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{
		{Name: "failed", State: "Stuck", Wanted: "os-1", Image: "r/os@sha256:0", Message: "build os-1 failed: x"}, {Name: "refused", State: "Stuck", Wanted: "os-9", Message: "conflict"},
		{Name: "pinned", State: "Stuck", Wanted: "os-1"}, {Name: "elsewhere", State: "Stuck", Wanted: "os-1"}, {Name: "good", State: "Use", Wanted: "os-2"}, {Name: "was", State: "Stuck", Wanted: "os-1"}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigConflict}}}}
	var plan model.Plan
	for _, p := range []string{"failed", "refused", "pinned", "good", "was", "plain"} {
		plan.Nodes = append(plan.Nodes, model.NodePlan{Node: "n-" + p, Pool: p})
	}
	w := Snapshot{Moves: MovesOf(plan), Pools: []v1alpha1.UpdatePool{pool("failed", "os", ""), pool("refused", "os", ""), pool("pinned", "os", "os-0"), pool("elsewhere", "os", ""), pool("good", "os", ""), pool("was", "another", ""), pool("plain", "", "")}}
	got, err := readOSBuilds(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(o, build("os-1", v1alpha1.BuildFailed), build("os-2", v1alpha1.BuildSucceeded)).Build(), w)
	want := []gate.OSBuild{{Pool: "failed", OSImage: "os", Build: "os-1", Image: "r/os@sha256:0", Message: "build os-1 failed: x", Reason: v1alpha1.ReasonConfigConflict}, {Pool: "refused", OSImage: "os", Message: "conflict", Reason: v1alpha1.ReasonConfigConflict}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	w.Pools = w.Pools[6:]
	if got, err := readOSBuilds(t.Context(), nil, w); got != nil || err != nil { // OS images may be left out
		t.Error(got, err)
	}
}

// A dangerous argument closes the gate once for a pool, until a person accepts it.
func TestDangerousArgumentsCloseTheGate(t *testing.T) {
	t.Parallel()
	gets := func(node, pool, from, to string) model.NodePlan {
		return model.NodePlan{Node: node, Pool: pool, Steps: []model.Step{{ID: "os-image", Updater: "os-image", Changes: []model.Change{{Path: model.FieldKernelArguments, From: from, To: to}}}}}
	}
	m := MovesOf(model.Plan{Nodes: []model.NodePlan{gets("a", "edge", "", "quiet rd.break"), gets("b", "edge", "", "rd.break quiet"), gets("c", "core", "mem=1G", "mem=1G quiet")}})
	in := gate.Input{Arguments: m.arguments}
	no := func(in gate.Input) (out []string) {
		for _, b := range gate.Decide(in).Blockers {
			if b.Reason == v1alpha1.ReasonDangerousArguments {
				out = append(out, b.Message)
			}
		}
		return out
	}
	if got := no(in); len(got) != 1 || !strings.Contains(got[0], "pool edge") || !strings.Contains(got[0], "rd.break") {
		t.Errorf("%q", got)
	}
	in.Now = time.Now()
	in.Accepted = []gate.Risk{{Check: "kernel-arguments", Reason: "tried in the laboratory", Until: in.Now.Add(time.Hour)}}
	if got := no(in); len(got) != 0 {
		t.Errorf("accepted, and still %q", got)
	}
}

// What an image has is compared with the nodes that boot it, and with the API server that they
// will have. What cannot be read is a warning.
func TestImagesFitTheirNodes(t *testing.T) {
	t.Parallel()
	const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	f := osimage.ImageFacts{Platform: "linux/amd64", Bootable: true, Kernels: []osimage.Kernel{{Version: "6.12", Initramfs: true, Size: 90 << 20}}, Kubelet: "usr/bin/kubelet", KubeletVersion: "v1.36.3", Runtime: "usr/bin/crio",
		Agent: "usr/local/bin/refit-agent", Systemd: true, Units: []string{"crio.service", "kubelet.service", "refit-agent.service"}, Packed: 1 << 20, Unpacked: 3 << 20}
	data := string(contents.SealFacts(digest, []osimage.ImageFacts{f}))
	f.WithoutSELinux = true
	unlabelled := string(contents.SealFacts(digest, []osimage.ImageFacts{f}))
	f.WithoutSELinux, f.Agent, f.Units = false, "", f.Units[:2]
	bare := string(contents.SealFacts(digest, []osimage.ImageFacts{f}))
	without := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentOSFacts, bare)}, Type: v1alpha1.ContentOSFacts, Data: bare}
	labels := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentOSFacts, unlabelled)}, Type: v1alpha1.ContentOSFacts, Data: unlabelled}
	stored := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentOSFacts, data)}, Type: v1alpha1.ContentOSFacts, Data: data}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	machine := func(name, arch, driver, policy string) *gate.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: arch, KernelVersion: "6.11", KubeletVersion: "v1.36.1"}}}
		nu := &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: map[string]string{model.FieldOSDriver: driver, model.FieldOSPolicy: policy}}}}
		return &gate.Node{Name: name, Host: hostOf(n, nu)}
	}
	returns := func(name, driver, fallback string) *gate.Node {
		n := machine(name, "amd64", driver, "")
		nu := &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: map[string]string{model.FieldOSDriver: driver, model.FieldOSBootFallback: fallback}}}}
		n.Host = hostOf(&corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64", KernelVersion: "6.11"}}}, nu)
		return n
	}
	enforces := func(name, driver string) *gate.Node {
		n := machine(name, "amd64", driver, "")
		n.Host.Enforcing = hostOf(&corev1.Node{}, &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: map[string]string{model.FieldOSSELinux: model.ValueEnforcing}}}}).Enforcing
		return n
	}
	noLabels := v1alpha1.OSImagePool{Image: "r/os@" + digest, Facts: labels.Name}
	keeps := machine("n1", "amd64", "bootc", "")
	keeps.Host.KeepsAgent = hostOf(&corev1.Node{}, &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: map[string]string{model.FieldOSAgent: model.ValueCarried}}}}).KeepsAgent
	noAgent := v1alpha1.OSImagePool{Image: "r/os@" + digest, Facts: without.Name}
	require := v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{BootFallback: v1alpha1.BootFallbackRequire}}
	other := *require.DeepCopy()
	other.Name = "other"
	for name, c := range map[string]struct {
		nodes []*gate.Node
		pool  v1alpha1.OSImagePool
		set   func(*gate.Input)
		rules v1alpha1.UpdatePool
		want  string
	}{
		"a good one":               {nodes: []*gate.Node{machine("n1", "amd64", "bootc", model.SignaturePolicyAccepts)}},
		"one of another machine":   {nodes: []*gate.Node{machine("n1", "amd64", "", ""), machine("n2", "arm64", "", "")}, want: "OSImageArchitecture"},
		"the machine is elsewhere": {nodes: []*gate.Node{machine("n1", "amd64", "", ""), machine("n9", "arm64", "", "")}},
		"an older control plane": {nodes: []*gate.Node{machine("n1", "amd64", "", "")}, set: func(in *gate.Input) {
			in.Nodes = append(in.Nodes, &gate.Node{Name: "c1", ControlPlane: true, Host: gate.Host{Kubelet: "v1.36.0"}}, &gate.Node{Name: "c2", ControlPlane: true, Host: gate.Host{Kubelet: "v1.35.9"}})
		}, want: "OSImageKubeletSkew"},
		"it is updated first": {nodes: []*gate.Node{machine("n1", "amd64", "", "")}, set: func(in *gate.Input) {
			in.TargetKubernetes = "v1.37.0"
			in.Nodes = append(in.Nodes, &gate.Node{Name: "c2", ControlPlane: true, Host: gate.Host{Kubelet: "v1.35.9"}})
		}},
		"a full /boot": {nodes: []*gate.Node{machine("n1", "amd64", "", ""), machine("n2", "amd64", "", "")}, set: func(in *gate.Input) {
			in.Nodes[0].FileSystems = []gate.FileSystem{{Name: pin.BootFS, Free: 200 << 20}, {Name: pin.SysrootFS, Free: 1 << 30}}
			in.Nodes[1].FileSystems = []gate.FileSystem{{Name: pin.BootFS}, {Name: pin.StateFS, Free: 1}}
		}, want: "OSImageTooLarge"},
		"a policy":                        {nodes: []*gate.Node{machine("n1", "amd64", "bootc", model.SignaturePolicyRejects), machine("n2", "amd64", "bootc", model.SignaturePolicyBypassed), machine("n3", "amd64", "bootc", "")}, want: "OSImageSignaturePolicy"},
		"no fallback":                     {nodes: []*gate.Node{returns("n1", "bootc", model.ValueComplete), returns("n2", "ostree", "panic")}, want: "warning OSBootFallbackMissing"},
		"no fallback, but required":       {nodes: []*gate.Node{returns("n1", "bootc", model.ValueComplete), returns("n2", "ostree", "panic")}, rules: require, want: "OSBootFallbackMissing"},
		"no fallback, required elsewhere": {nodes: []*gate.Node{returns("n2", "ostree", "panic")}, rules: other, want: "warning OSBootFallbackMissing"},
		"all return":                      {nodes: []*gate.Node{returns("n1", "bootc", model.ValueComplete)}, rules: require},
		"one has not said":                {nodes: []*gate.Node{returns("n1", "bootc", "")}, rules: require, want: "OSBootFallbackMissing"},
		"required, and not read":          {nodes: []*gate.Node{returns("n1", "bootc", "panic")}, rules: require, pool: v1alpha1.OSImagePool{Image: "r/os@" + digest, FactsMessage: "away"}, want: "unread: away OSBootFallbackMissing"},
		"no agent, and nodes keep theirs": {nodes: []*gate.Node{keeps}, pool: noAgent, want: "warning OSImageAgentMissing"},
		"no agent, and one loses its own": {nodes: []*gate.Node{keeps, machine("n2", "amd64", "bootc", "")}, pool: noAgent, want: "OSImageAgentMissing"},
		"no SELinux":                      {nodes: []*gate.Node{machine("n1", "amd64", "ostree", "")}, pool: noLabels},
		"no SELinux, one host enforces":   {nodes: []*gate.Node{machine("n1", "amd64", "ostree", ""), enforces("n2", "bootc")}, pool: noLabels, want: "warning OSImageSELinuxMissing"},
		"no SELinux, ostree enforces":     {nodes: []*gate.Node{enforces("n1", "ostree"), enforces("n2", "bootc")}, pool: noLabels, want: "OSImageSELinuxMissing"},
		"facts of another image":          {nodes: []*gate.Node{machine("n1", "amd64", "", "")}, pool: v1alpha1.OSImagePool{Image: "r/os@sha256:2", Facts: stored.Name}, want: "error"},
		"facts that are gone":             {nodes: []*gate.Node{machine("n1", "amd64", "", "")}, pool: v1alpha1.OSImagePool{Image: "r/os@" + digest, Facts: "osfacts-0"}, want: "error"},
		"not read":                        {nodes: []*gate.Node{machine("n1", "amd64", "", "")}, pool: v1alpha1.OSImagePool{Image: "r/os@" + digest, FactsMessage: "away"}, want: "unread: away"},
	} {
		p := c.pool
		if p.Image == "" {
			p = v1alpha1.OSImagePool{Image: "r/os@" + digest, Facts: stored.Name}
		}
		p.Name = "edge"
		o := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{p}}}
		in := &gate.Input{Nodes: c.nodes}
		if c.set != nil {
			c.set(in)
		}
		got, err := readOSImages(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(o, stored, without, labels).Build(), []v1alpha1.UpdatePool{c.rules}, map[string][]string{"edge": {"n1", "n2", "n3"}}, in)
		var says []string
		if err != nil {
			says = append(says, "error")
		}
		for _, x := range got {
			if x.Unread != "" {
				says = append(says, "unread: "+x.Unread)
			}
			for _, f := range x.Findings {
				if f.Warning {
					says = append(says, "warning")
				}
				says = append(says, f.Reason)
			}
		}
		if strings.Join(says, " ") != c.want {
			t.Errorf("%s: %q, want %q (%v)", name, says, c.want, err)
		}
	}
}
