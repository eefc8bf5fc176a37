//go:build linux

package osimages

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage/contents"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// livePool has a rule for one file.
func livePool() *v1alpha1.UpdatePool {
	p := pool()
	p.Spec.Disruption = []v1alpha1.DisruptionRule{{Files: []string{"/etc/chrony.conf"}, Actions: []v1alpha1.DisruptionAction{{Type: "Reload", Unit: "chronyd.service"}}}}
	return p
}

// baseOf pushes a base with files over the layers that all bases share.
func (w *site) baseOf(files map[string]string) string {
	return w.reg.Ref("os/base@" + w.reg.Push("os/base", registrytest.Image{Version: "9", Layers: []string{"kernel", "userland"}, Files: files}))
}

// base has the OSImage come from another one.
func (w *site) setBase(ref string) {
	w.t.Helper()
	var o v1alpha1.OSImage
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &o))
	o.Spec.Base.Image = ref
	w.must(w.admin.Update(context.Background(), &o))
}

// reportFields makes the agent of a node of the pool report fields; it creates the node first.
func (w *site) reportFields(name string, fields map[string]string) {
	w.t.Helper()
	ctx := context.Background()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "edge"}}}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}}
	if err := w.admin.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
		w.create(n)
		w.must(w.r.Client.Create(ctx, nu)) // only the controller may
	}
	w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(nu), nu))
	nu.Status.Agent = &v1alpha1.AgentInfo{Version: "v1"}
	nu.Status.Observed = &v1alpha1.Observed{Fields: fields}
	w.must(w.admin.Status().Update(ctx, nu))
}

func digestOf(image string) string {
	_, d, _ := strings.Cut(image, "@")
	return d
}

func (w *site) booted(p v1alpha1.OSImagePool, more ...string) map[string]string {
	out := map[string]string{"os/driver": "ostree", model.FieldOSImage: digestOf(p.Image)}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// takeEvents returns the events since the last call.
func (w *site) takeEvents() (out []string) {
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// metricValue returns the value of a metric; labels are the label values, in the order of the
// label names.
func (w *site) metricValue(name string, labels ...string) float64 {
	w.t.Helper()
	families, err := w.numbers.Gather()
	w.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(have, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// A new base that differs from the booted image only in a file with a disruption rule is not
// booted: nodes keep their image, and the agents write the file. This survives a registry
// outage and a restart of the controller. Without the rule, or when the next base differs in
// more files, the nodes boot the image, and the file is the one of the image again.
func TestNotBootedForAFile(t *testing.T) {
	w := newSite(t)
	one := w.baseOf(map[string]string{"etc/chrony.conf": "one", "usr/bin/x": "x"})
	two := w.baseOf(map[string]string{"etc/chrony.conf": "two", "usr/bin/x": "x"})
	three := w.baseOf(map[string]string{"etc/chrony.conf": "two", "usr/bin/x": "y"})
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image = one }), livePool(), config())
	first := w.pool(w.reconcileAndBuild())
	w.reportFields("n1", w.booted(first))
	w.takeEvents()

	w.setBase(two)
	o := w.reconcileAndBuild()
	p := w.pool(o)
	if p.State != "Keep" || p.Image != first.Image || p.Build != first.Build || p.Live == nil || p.Live.Build != p.Wanted || p.Live.Files != 1 || !strings.HasPrefix(p.Live.Image, w.reg.Ref("os/edge@sha256:")) ||
		!slices.Equal(p.Written, []string{"/etc/chrony.conf"}) || ready(o).Status != metav1.ConditionTrue {
		t.Fatalf("%+v %+v", p, p.Live)
	}
	if !strings.Contains(p.Message, "differs in 1 file: /etc/chrony.conf (Reload chronyd.service by a rule of the pool): written without a reboot") {
		t.Error(p.Message)
	}
	files := w.liveFiles(p)
	if len(files) != 1 || string(files[0].Data) != "two" || files[0].Path != "/etc/chrony.conf" || files[0].Mode != 0o644 {
		t.Errorf("%+v", files)
	}
	heard := strings.Join(w.takeEvents(), "\n")
	for _, want := range []string{"Normal ImageBuilding it is built with Append: changed since " + first.Build + ": base", "Normal ImageBuilt the image is " + w.reg.Ref("os/edge@sha256:"), "Normal ImageNotBooted pool edge: image "} {
		if strings.Count(heard, want) != 1 {
			t.Errorf("the event %q was not emitted exactly once: %s", want, heard)
		}
	}
	if w.metricValue("refit_os_images_not_booted_total", "edge") != 1 || w.metricValue("refit_os_builds", "edge", "Succeeded") != 2 || w.metricValue("refit_os_build_duration_seconds", "Append", "Succeeded") != 2 ||
		w.metricValue("refit_os_build_wait_seconds", "Append") != 2 || w.metricValue("refit_os_build_push_seconds", "Append") != 2 {
		t.Error("it is not counted")
	}

	// The controller restarts while the registry is unreachable.
	w.restartController()
	w.reg.Stop()
	if p := w.pool(w.reconcile()); p.Image != first.Image || p.Live == nil {
		t.Errorf("unreachable: %+v", p)
	}
	w.reg.Resume()
	w.reg.Requests()
	if p := w.pool(w.reconcileAndBuild()); p.State != "Keep" || p.Live == nil {
		t.Errorf("again: %+v", p)
	}
	if n := w.blobReads(); n > 1 { // the configuration, for the size that nodes fetch
		t.Errorf("known blobs were read once more: %d blobs", n)
	}
	if len(w.takeEvents()) != 0 {
		t.Error("nothing changed, and an event was emitted")
	}

	// A change below /usr needs a boot.
	w.setBase(three)
	third := w.pool(w.reconcileAndBuild())
	if third.State != "Use" || third.Image == first.Image || third.Live != nil || !strings.Contains(third.Reboot, "/usr/bin/x: outside of /etc only a booted image changes files") || !strings.Contains(third.Message, "made it") || !slices.Equal(third.Written, []string{"/etc/chrony.conf"}) {
		t.Fatalf("%+v", third)
	}
	// The node restores the file of its image and boots. Only then the file leaves the status.
	w.reportFields("n1", w.booted(first, "file//etc/chrony.conf", model.ValueAsImage))
	if p := w.pool(w.reconcileAndBuild()); len(p.Written) != 1 {
		t.Errorf("the file left the status before the boot: %+v", p)
	}
	w.reportFields("n1", w.booted(third, "file//etc/chrony.conf", model.ValueAsImage))
	if p := w.pool(w.reconcileAndBuild()); p.Written != nil || p.Reboot != third.Reboot {
		t.Errorf("%+v", p)
	}
	// Back to the first base: an event reports that nothing is built. No node runs that image, so it is booted.
	w.takeEvents()
	w.setBase(one)
	if p := w.pool(w.reconcileAndBuild()); p.Image != first.Image || p.State != "Use" || p.Live != nil {
		t.Errorf("%+v", p)
	}
	if heard := strings.Join(w.takeEvents(), "\n"); !strings.Contains(heard, "Normal ImageReused pool edge has the image of build "+first.Build+" again") || w.metricValue("refit_os_builds_reused_total", "edge") != 1 {
		t.Error(heard)
	}
}

func (w *site) liveFiles(p v1alpha1.OSImagePool) []model.ConfigFile {
	w.t.Helper()
	var c v1alpha1.Content
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: p.Live.Content}, &c))
	files, err := contents.OpenFiles([]byte(c.Data), digestOf(p.Image), digestOf(p.Live.Image))
	w.must(err)
	return files
}

// blobReads counts the blobs that the registry served since the last call.
func (w *site) blobReads() (n int) {
	for _, r := range w.reg.Requests() {
		if r.Method == http.MethodGet && strings.Contains(r.Path, "/blobs/") {
			n++
		}
	}
	return n
}

// restartController replaces the controller by one with nothing in memory.
func (w *site) restartController() {
	old := w.r
	w.r = &Reconciler{Client: old.Client, Live: old.Live, Poller: old.Poller, Over: old.Over, Now: old.Now, Tell: old.Tell}
	w.builds = w.r.builds()
}

// A base with the same contents is not booted, and a live file is restored without a boot.
// Nodes that cannot keep their image boot the new one.
func TestNodesStayOrBoot(t *testing.T) {
	w := newSite(t)
	one := w.baseOf(map[string]string{"etc/chrony.conf": "one"})
	two := w.baseOf(map[string]string{"etc/chrony.conf": "two"})
	same := w.reg.Ref("os/base@" + w.reg.Push("os/base", registrytest.Image{Version: "10", Layers: []string{"kernel", "userland"}, Files: map[string]string{"etc/chrony.conf": "one"}}))
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image = one }), livePool(), config())
	first := w.pool(w.reconcileAndBuild())
	w.reportFields("n1", w.booted(first))

	w.setBase(same)
	if p := w.pool(w.reconcileAndBuild()); p.State != "Keep" || p.Image != first.Image || p.Live == nil || p.Live.Files != 0 || p.Written != nil || !strings.Contains(p.Message, "has the same contents: nodes stay on the one that they have") {
		t.Fatalf("%+v", p)
	}
	// The configuration changes as well: its own rule decides what that costs.
	w.setBase(two)
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.Files = []v1alpha1.NodeFile{inline("/etc/sysctl.d/9.conf", "a=1")} })
	p := w.pool(w.reconcileAndBuild())
	if p.State != "Keep" || p.Image != first.Image || p.Live == nil || p.Live.Files != 1 {
		t.Fatalf("%+v", p)
	}
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.Files = nil })
	if p = w.pool(w.reconcileAndBuild()); p.State != "Keep" || p.Live == nil || !slices.Equal(p.Written, []string{"/etc/chrony.conf"}) {
		t.Fatalf("%+v", p)
	}
	// Back to the booted base: the image stays, and the file of the image is restored.
	w.setBase(one)
	if p = w.pool(w.reconcileAndBuild()); p.State != "Use" || p.Image != first.Image || p.Live != nil || !slices.Equal(p.Written, []string{"/etc/chrony.conf"}) {
		t.Fatalf("%+v", p)
	}
	w.reportFields("n1", w.booted(first, "file//etc/chrony.conf", model.ValueAsImage))
	if p = w.pool(w.reconcileAndBuild()); p.Written != nil {
		t.Errorf("%+v", p)
	}
	// The rule that covered it goes: the image is booted.
	w.setBase(two)
	if p = w.pool(w.reconcileAndBuild()); p.State != "Keep" {
		t.Fatalf("%+v", p)
	}
	var up v1alpha1.UpdatePool
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &up))
	up.Spec.Disruption = nil
	w.must(w.admin.Update(context.Background(), &up))
	if p = w.pool(w.reconcileAndBuild()); p.State != "Use" || p.Image == first.Image || !strings.Contains(p.Reboot, "no rule speaks of it but a reboot") {
		t.Fatalf("%+v", p)
	}
}

// A live change is impossible, and the nodes boot, if /etc does not come from an image or no
// node runs the previous image.
func TestNodesThatCannotStay(t *testing.T) {
	for name, c := range map[string]struct {
		fields map[string]string
		want   string
	}{
		"laid over /usr":           {map[string]string{"os/driver": "sysext"}, "node n1 takes no /etc from an image (sysext)"},
		"made of packages":         {map[string]string{"os/driver": "package"}, "node n1 takes no /etc from an image (package)"},
		"not booted yet":           {map[string]string{"os/driver": "ostree", model.FieldOSImage: "sha256:old"}, "no node has booted the image before"},
		"the image before is gone": {nil, "the registry has the image before no more"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSite(t)
			w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image = w.baseOf(map[string]string{"etc/chrony.conf": "one"}) }), livePool(), config())
			first := w.pool(w.reconcileAndBuild())
			if c.fields == nil {
				c.fields = w.booted(first)
				w.reg.Delete("os/edge", digestOf(first.Image))
				w.now = w.now.Add(hasEvery)
			}
			if c.fields[model.FieldOSImage] == "" {
				c.fields[model.FieldOSImage] = digestOf(first.Image)
			}
			w.reportFields("n1", c.fields)
			w.setBase(w.baseOf(map[string]string{"etc/chrony.conf": "two"}))
			p := w.pool(w.reconcileAndBuild())
			if diff := cmp.Diff(c.want, p.Reboot[:min(len(p.Reboot), len(c.want))]); diff != "" || p.State != "Use" || p.Image == first.Image || p.Live != nil {
				t.Errorf("%s %+v", diff, p)
			}
		})
	}
}

// The event of a failed build has the end of its log. A build that is no longer wanted is
// reported as interrupted.
func TestEventsOfBuilds(t *testing.T) {
	w := newSite(t)
	w.create(w.osImage(), pool(), config())
	w.reconcile()
	w.editConfig(func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"nosmt"} })
	w.reconcile()
	w.setBase(w.reg.Ref("os/base@sha256:" + strings.Repeat("0", 64)))
	w.reconcileAndBuild()
	heard := strings.Join(w.takeEvents(), "\n")
	if strings.Count(heard, "Normal BuildInterrupted") != 2 || strings.Count(heard, "Warning ImageBuildFailed it failed") != 1 || !strings.Contains(heard, strings.Repeat("0", 64)) {
		t.Error(heard)
	}
	if w.metricValue("refit_os_builds_ended_total", "Append", "edge", "Failed") != 1 || w.metricValue("refit_os_builds_ended_total", "Append", "edge", "Interrupted") != 2 {
		t.Error("it is not counted")
	}
}
