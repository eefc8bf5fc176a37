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

// runs is a node of the pool whose agent says what it sees.
func (w *site) runs(name string, fields map[string]string) {
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

// heard are the events since the last call.
func (w *site) heard() (out []string) {
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// number of a metric, its labels' values in the order of their names.
func (w *site) number(name string, labels ...string) float64 {
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

// A new base that differs from the one that nodes run only in a file that a rule speaks of
// is not booted: nodes keep their image, and agents are told the file. So it stays while
// the registry is away, and for a controller that knows nothing. When the rule goes, or
// when the next base differs in more, the image is booted; the file is given back to it.
func TestNotBootedForAFile(t *testing.T) {
	w := newWorld(t)
	one := w.baseOf(map[string]string{"etc/chrony.conf": "one", "usr/bin/x": "x"})
	two := w.baseOf(map[string]string{"etc/chrony.conf": "two", "usr/bin/x": "x"})
	three := w.baseOf(map[string]string{"etc/chrony.conf": "two", "usr/bin/x": "y"})
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image = one }), livePool(), config())
	first := w.pool(w.work())
	w.runs("n1", w.booted(first))
	w.heard()

	w.setBase(two)
	o := w.work()
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
	heard := strings.Join(w.heard(), "\n")
	for _, want := range []string{"Normal ImageBuilding it is built with Append: changed since " + first.Build + ": base", "Normal ImageBuilt the image is " + w.reg.Ref("os/edge@sha256:"), "Normal ImageNotBooted pool edge: image "} {
		if strings.Count(heard, want) != 1 {
			t.Errorf("%q is not said once: %s", want, heard)
		}
	}
	if w.number("refit_os_images_not_booted_total", "edge") != 1 || w.number("refit_os_builds", "edge", "Succeeded") != 2 || w.number("refit_os_build_duration_seconds", "Append", "Succeeded") != 2 {
		t.Error("it is not counted")
	}

	// A controller that knows nothing, and a registry that is away.
	w.again()
	w.reg.Stop()
	if p := w.pool(w.look()); p.Image != first.Image || p.Live == nil {
		t.Errorf("away: %+v", p)
	}
	w.reg.Resume()
	w.reg.Requests()
	if p := w.pool(w.work()); p.State != "Keep" || p.Live == nil {
		t.Errorf("again: %+v", p)
	}
	if n := w.read(); n > 1 { // the configuration, for the size that nodes fetch
		t.Errorf("what is known was read once more: %d blobs", n)
	}
	if len(w.heard()) != 0 {
		t.Error("nothing is new, and it is told")
	}

	// What lies below /usr is booted.
	w.setBase(three)
	third := w.pool(w.work())
	if third.State != "Use" || third.Image == first.Image || third.Live != nil || !strings.Contains(third.Reboot, "/usr/bin/x: only an image that is booted brings") || !strings.Contains(third.Message, "made it") || !slices.Equal(third.Written, []string{"/etc/chrony.conf"}) {
		t.Fatalf("%+v", third)
	}
	// The node gives the file back, boots, and only then it is nobody's business any more.
	w.runs("n1", w.booted(first, "file//etc/chrony.conf", model.ValueAsImage))
	if p := w.pool(w.work()); len(p.Written) != 1 {
		t.Errorf("it is forgotten before the boot: %+v", p)
	}
	w.runs("n1", w.booted(third, "file//etc/chrony.conf", model.ValueAsImage))
	if p := w.pool(w.work()); p.Written != nil || p.Reboot != third.Reboot {
		t.Errorf("%+v", p)
	}
	// Back: nothing is built, and it is said. No node runs that image, so it is booted.
	w.heard()
	w.setBase(one)
	if p := w.pool(w.work()); p.Image != first.Image || p.State != "Use" || p.Live != nil {
		t.Errorf("%+v", p)
	}
	if heard := strings.Join(w.heard(), "\n"); !strings.Contains(heard, "Normal ImageReused pool edge has the image of build "+first.Build+" again") || w.number("refit_os_builds_reused_total", "edge") != 1 {
		t.Error(heard)
	}
}

func (w *site) liveFiles(p v1alpha1.OSImagePool) []model.ConfigFile {
	w.t.Helper()
	var c v1alpha1.Content
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: p.Live.Content}, &c))
	files, err := contents.Open([]byte(c.Data), digestOf(p.Image), digestOf(p.Live.Image))
	w.must(err)
	return files
}

// read counts the blobs that were read since the last look at what was served.
func (w *site) read() (n int) {
	for _, r := range w.reg.Requests() {
		if r.Method == http.MethodGet && strings.Contains(r.Path, "/blobs/") {
			n++
		}
	}
	return n
}

// again is another controller, with nothing in memory.
func (w *site) again() {
	old := w.r
	w.r = &Reconciler{Client: old.Client, Live: old.Live, Poller: old.Poller, Over: old.Over, Now: old.Now, Tell: old.Tell}
	w.builds = w.r.builds()
}

// What is the same is not booted; what is live goes back the same way; and where nodes
// cannot stay, they boot.
func TestNodesStayOrBoot(t *testing.T) {
	w := newWorld(t)
	one := w.baseOf(map[string]string{"etc/chrony.conf": "one"})
	two := w.baseOf(map[string]string{"etc/chrony.conf": "two"})
	same := w.reg.Ref("os/base@" + w.reg.Push("os/base", registrytest.Image{Version: "10", Layers: []string{"kernel", "userland"}, Files: map[string]string{"etc/chrony.conf": "one"}}))
	w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image = one }), livePool(), config())
	first := w.pool(w.work())
	w.runs("n1", w.booted(first))

	w.setBase(same)
	if p := w.pool(w.work()); p.State != "Keep" || p.Image != first.Image || p.Live == nil || p.Live.Files != 0 || p.Written != nil || !strings.Contains(p.Message, "has the same contents: nodes stay on the one that they have") {
		t.Fatalf("%+v", p)
	}
	// The configuration changes beside it: it says itself what that costs.
	w.setBase(two)
	w.say(func(s *v1alpha1.NodeConfigSpec) { s.Files = []v1alpha1.NodeFile{inline("/etc/sysctl.d/9.conf", "a=1")} })
	p := w.pool(w.work())
	if p.State != "Keep" || p.Image != first.Image || p.Live == nil || p.Live.Files != 1 {
		t.Fatalf("%+v", p)
	}
	w.say(func(s *v1alpha1.NodeConfigSpec) { s.Files = nil })
	if p = w.pool(w.work()); p.State != "Keep" || p.Live == nil || !slices.Equal(p.Written, []string{"/etc/chrony.conf"}) {
		t.Fatalf("%+v", p)
	}
	// Back to what is booted: the image stays, and the file is given back.
	w.setBase(one)
	if p = w.pool(w.work()); p.State != "Use" || p.Image != first.Image || p.Live != nil || !slices.Equal(p.Written, []string{"/etc/chrony.conf"}) {
		t.Fatalf("%+v", p)
	}
	w.runs("n1", w.booted(first, "file//etc/chrony.conf", model.ValueAsImage))
	if p = w.pool(w.work()); p.Written != nil {
		t.Errorf("%+v", p)
	}
	// The rule that covered it goes: the image is booted.
	w.setBase(two)
	if p = w.pool(w.work()); p.State != "Keep" {
		t.Fatalf("%+v", p)
	}
	var up v1alpha1.UpdatePool
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &up))
	up.Spec.Disruption = nil
	w.must(w.admin.Update(context.Background(), &up))
	if p = w.pool(w.work()); p.State != "Use" || p.Image == first.Image || !strings.Contains(p.Reboot, "no rule speaks of it but a reboot") {
		t.Fatalf("%+v", p)
	}
}

// Nodes boot what they cannot be given otherwise: a host whose /etc is no image's; an image
// that nobody runs yet.
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
			w := newWorld(t)
			w.create(w.osImage(func(s *v1alpha1.OSImageSpec) { s.Base.Image = w.baseOf(map[string]string{"etc/chrony.conf": "one"}) }), livePool(), config())
			first := w.pool(w.work())
			if c.fields == nil {
				c.fields = w.booted(first)
				w.reg.Delete("os/edge", digestOf(first.Image))
				w.now = w.now.Add(hasEvery)
			}
			if c.fields[model.FieldOSImage] == "" {
				c.fields[model.FieldOSImage] = digestOf(first.Image)
			}
			w.runs("n1", c.fields)
			w.setBase(w.baseOf(map[string]string{"etc/chrony.conf": "two"}))
			p := w.pool(w.work())
			if diff := cmp.Diff(c.want, p.Reboot[:min(len(p.Reboot), len(c.want))]); diff != "" || p.State != "Use" || p.Image == first.Image || p.Live != nil {
				t.Errorf("%s %+v", diff, p)
			}
		})
	}
}

// Builds that fail are told with the end of the log, those that nobody wants as interrupted.
func TestToldOfBuilds(t *testing.T) {
	w := newWorld(t)
	w.create(w.osImage(), pool(), config())
	w.look()
	w.say(func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"nosmt"} })
	w.look()
	w.setBase(w.reg.Ref("os/base@sha256:" + strings.Repeat("0", 64)))
	w.work()
	heard := strings.Join(w.heard(), "\n")
	if strings.Count(heard, "Normal BuildInterrupted") != 2 || strings.Count(heard, "Warning ImageBuildFailed it failed") != 1 || !strings.Contains(heard, strings.Repeat("0", 64)) {
		t.Error(heard)
	}
	if w.number("refit_os_builds_ended_total", "Append", "edge", "Failed") != 1 || w.number("refit_os_builds_ended_total", "Append", "edge", "Interrupted") != 2 {
		t.Error("it is not counted")
	}
}
