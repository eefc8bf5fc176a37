package staticpod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// simNode is a node whose kubelet reads the manifest a few seconds after it has
// changed, and stops the pod before it starts another one.
type simNode struct {
	root string
	// row is the node's distribution, "" for kubeadm.
	row string
	// images that the runtime has, by name.
	images map[string]string
	// runs is what the pod was started with, "" while it is stopped; age is how
	// long ago.
	runs string
	age  int
	// sick: the new image never becomes ready. away: the API server does not answer.
	sick, away bool
	hang       chan struct{}
	hung       chan struct{}
}

func (n *simNode) Distribution() distribution.Row {
	row, _ := distribution.ByName(cmp.Or(n.row, distribution.Kubeadm))
	return row
}

func (n *simNode) StaticPodDir() string { return n.Distribution().Places.StaticPods }

var manifestsDir = distribution.KubeadmPlaces().StaticPods

func (n *simNode) path() string { return filepath.Join(n.root, n.StaticPodDir(), "proxy.yaml") }

func (n *simNode) manifest() string {
	b, err := os.ReadFile(n.path())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// wanted is the image in the manifest.
func (n *simNode) wanted() string {
	for _, line := range strings.Split(n.manifest(), "\n") {
		if image, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok {
			return image
		}
	}
	return ""
}

func (n *simNode) tick() {
	n.age++
	switch {
	case n.runs != n.wanted() && n.runs != "" && n.age > 3:
		n.runs, n.age = "", 0
	case n.runs == "" && n.age > 3:
		n.runs, n.age = n.wanted(), 0
	}
}

func (n *simNode) Node() string { return "n2" }

func (n *simNode) Containers(ctx context.Context) ([]cri.Container, error) {
	if n.hang != nil {
		close(n.hung)
		n.hang = nil
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out := []cri.Container{{Namespace: "default", Pod: "proxy-n2", Name: "app", ImageID: "id of an older life", Created: time.Unix(1, 0)}}
	if n.runs != "" {
		out = append(out, cri.Container{Namespace: "default", Pod: "proxy-n2", Name: "app", ImageID: n.images[n.runs], Running: true, Created: time.Unix(2, 0)})
	}
	return out, nil
}

func (n *simNode) ImageID(_ context.Context, name string) (string, error) { return n.images[name], nil }

func (n *simNode) PodStatus(_ context.Context, namespace, name string) (map[string]string, bool, error) {
	if n.away || namespace != "default" || name != "proxy-n2" {
		return nil, false, errors.New("no answer")
	}
	return map[string]string{"app": n.wanted()}, n.runs != "" && n.age > 2 && (!n.sick || n.runs == older), nil
}

const text = "# by hand\napiVersion: v1\nkind: Pod\nmetadata:\n  name: proxy\nspec:\n  containers:\n  - name: app\n    image: " + older + "\n"

func newNode(t *testing.T) (*simNode, updaters.Task) {
	n := &simNode{root: t.TempDir(), images: map[string]string{older: "old", newer: "new"}, runs: older, age: 100}
	put(t, n.path(), text)
	step := model.StaticPodImages{Namespace: "default", Pod: "proxy", To: map[string]string{"app": newer}, Was: map[string]string{"app": older}}
	return n, updaters.Task{UID: "u", Attempt: 1, Started: time.Now(), Dir: filepath.Join(n.root, "runs"), Rollback: filepath.Join(n.root, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "static-pod", Updater: "static-pod", Verb: "write", Params: step.Params()}}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func make1(n *simNode, now *time.Time) *Updater {
	u := New(n, n.root)
	u.now = func() time.Time { return *now }
	return u
}

func TestConformance(t *testing.T) {
	updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture {
		n, tk := newNode(t)
		now := time.Now()
		return &updatertest.Fixture{
			Make: func() updaters.Updater { return make1(n, &now) },
			Task: tk, Tick: func() { now = now.Add(time.Second); n.tick() },
			State: func() string {
				if n.runs != n.wanted() || n.age < 3 {
					return "between"
				}
				return n.runs + " " + n.manifest()
			},
			From: older + " " + text, To: newer + " " + strings.Replace(text, older, newer, 1), Reversible: true,
			Break: func() { n.sick = true },
			Hang: func() <-chan struct{} {
				n.hang, n.hung = make(chan struct{}), make(chan struct{})
				return n.hung
			},
		}
	})
}

// drive a step to its end.
func drive(t *testing.T, n *simNode, tk updaters.Task, each func(i int)) updaters.Result {
	t.Helper()
	now := tk.Started
	for i := range 2000 {
		r, err := make1(n, &now).Update(t.Context(), tk) // a new process every time
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		each(i)
		now = now.Add(time.Second)
		n.tick()
	}
	t.Fatal("no end")
	return updaters.Result{}
}

// A pod that does not become ready gets its old manifest back, to the byte, even if the
// API server does not answer any more, and the step fails with the reason.
func TestWhatIsNotReadyIsPutBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how  func(*simNode)
		says string
	}{
		"the new image never becomes ready": {func(n *simNode) { n.sick = true }, "is restored, and runs"},
		"what it does leads to the API":     {func(n *simNode) { n.away = true }, "is restored, but does not run yet"},
		"the image went after the check":    {func(n *simNode) { n.sick = true }, "is restored"},
	} {
		n, tk := newNode(t)
		r := drive(t, n, tk, func(i int) {
			if i == 0 {
				c.how(n)
			}
		})
		if !r.Failed || r.Reason != v1alpha1.ReasonStaticPodNotReady || !strings.Contains(r.Message, c.says) || !strings.Contains(r.Message, "within 5m0s") {
			t.Errorf("%s: %+v", name, r)
		}
		st, err := os.Stat(n.path())
		if err != nil || n.manifest() != text || st.Mode().Perm() != 0o640 {
			t.Errorf("%s: the manifest is %q, %v %v", name, n.manifest(), st.Mode(), err)
		}
	}
}

// What the step may not change is not touched, and the message says why.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(*simNode, *model.StaticPodImages)
		reason  string
		says    string
	}{
		"the image is not on the node": {func(n *simNode, _ *model.StaticPodImages) { delete(n.images, newer) }, v1alpha1.ReasonImagesMissing, "nothing was changed"},
		"kubeadm's own, by its name": {func(n *simNode, p *model.StaticPodImages) {
			put(t, filepath.Join(n.root, manifestsDir, "etcd.yaml"), strings.Replace(text, "name: proxy", "name: etcd\n  namespace: kube-system", 1))
			p.Namespace, p.Pod = "kube-system", "etcd"
		}, v1alpha1.ReasonStaticPodRefused, "a static pod of kubeadm"},
		"kubeadm's own, by what it wrote there": {func(n *simNode, _ *model.StaticPodImages) {
			put(t, n.path(), strings.Replace(text, "name: proxy", "name: proxy\n  annotations: {kubeadm.kubernetes.io/etcd.advertise-client-urls: x}", 1))
		}, v1alpha1.ReasonStaticPodRefused, "a static pod of kubeadm"},
		"RKE2's own, where RKE2 has them": {func(n *simNode, p *model.StaticPodImages) {
			n.row = distribution.RKE2
			put(t, n.path(), strings.Replace(text, "name: proxy", "name: kube-proxy\n  namespace: kube-system", 1))
			p.Namespace, p.Pod = "kube-system", "kube-proxy"
		}, v1alpha1.ReasonStaticPodRefused, "a static pod of RKE2"},
		"another directory than the node's": {func(n *simNode, _ *model.StaticPodImages) { n.row = distribution.K3s }, v1alpha1.ReasonStaticPodRefused, "no file in /var/lib/rancher/k3s/agent/pod-manifests"},
		"a kubelet that reads no files":     {func(n *simNode, _ *model.StaticPodImages) { n.row = distribution.K0s }, v1alpha1.ReasonStaticPodRefused, "the kubelet of k0s reads no static pods"},
		"another image is there than was planned": {func(n *simNode, _ *model.StaticPodImages) {
			put(t, n.path(), strings.Replace(text, older, older+"0", 1))
		}, v1alpha1.ReasonStaticPodRefused, "refit did not write"},
		"another repository": {func(_ *simNode, p *model.StaticPodImages) {
			p.To["app"] = "r.example/evil:1@" + digestB
		}, v1alpha1.ReasonStaticPodRefused, "another repository"},
		"no digest":           {func(_ *simNode, p *model.StaticPodImages) { p.To["app"] = older }, v1alpha1.ReasonStaticPodRefused, "digest"},
		"no such pod":         {func(_ *simNode, p *model.StaticPodImages) { p.Pod = "other" }, v1alpha1.ReasonStaticPodRefused, "no file"},
		"another namespace":   {func(_ *simNode, p *model.StaticPodImages) { p.Namespace = "kube-system" }, v1alpha1.ReasonStaticPodRefused, "no file"},
		"no such container":   {func(_ *simNode, p *model.StaticPodImages) { p.To, p.Was = map[string]string{"b": newer}, nil }, v1alpha1.ReasonStaticPodRefused, "no container b"},
		"two files of a pod":  {func(n *simNode, _ *model.StaticPodImages) { put(t, n.path()+".bak", text) }, v1alpha1.ReasonStaticPodRefused, "both manifests of pod"},
		"a link to elsewhere": {func(n *simNode, _ *model.StaticPodImages) { link(t, n) }, v1alpha1.ReasonStaticPodRefused, "refit follows no link"},
	} {
		n, tk := newNode(t)
		p := model.StaticPodImages{}
		if err := p.Read(tk.Step.Params); err != nil {
			t.Fatal(err)
		}
		c.prepare(n, &p)
		tk.Step.Params = p.Params()
		before := tree(t, n.root)
		r := drive(t, n, tk, func(int) {})
		if !r.Failed || r.Reason != c.reason || !strings.Contains(r.Message, c.says) {
			t.Errorf("%s: %+v", name, r)
		}
		if after := tree(t, n.root); after != before {
			t.Errorf("%s: files have changed\n%s\n%s", name, before, after)
		}
	}
}

func link(t *testing.T, n *simNode) {
	t.Helper()
	elsewhere := filepath.Join(n.root, "elsewhere.yaml")
	put(t, elsewhere, text)
	if err := os.Remove(n.path()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, n.path()); err != nil {
		t.Fatal(err)
	}
}

// tree is the files below a directory, with their content.
func tree(t *testing.T, root string) (out string) {
	t.Helper()
	err := filepath.Walk(root, func(path string, st os.FileInfo, err error) error {
		if err != nil || st.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out += fmt.Sprintf("%s %v %s\n", path, st.Mode(), b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A manifest that others change in the middle stays so, in both kinds of rollback.
func TestAForeignManifestStays(t *testing.T) {
	t.Parallel()
	theirs := strings.Replace(text, "by hand", "by another hand", 1)
	n, tk := newNode(t)
	n.sick = true
	r := drive(t, n, tk, func(i int) {
		if i == 290 {
			put(t, n.path(), strings.Replace(theirs, older, newer, 1))
		}
	})
	if !r.Failed || !strings.Contains(r.Message, "others have changed it since") || !strings.Contains(n.manifest(), "by another hand") {
		t.Fatalf("%+v %s", r, n.manifest())
	}
	n, tk = newNode(t)
	if r := drive(t, n, tk, func(int) {}); !r.Done {
		t.Fatalf("%+v", r)
	}
	put(t, n.path(), theirs)
	r, err := New(n, n.root).Undo(t.Context(), tk)
	if err != nil || !r.Done || !strings.Contains(r.Message, "others have changed it since") || n.manifest() != theirs {
		t.Fatalf("%+v %v %s", r, err, n.manifest())
	}
}

// killed stands for the end of the process at a point.
type killed struct{}

// Killed while it is restored, it is restored all the same.
func TestKilledWhileItIsPutBack(t *testing.T) {
	for _, point := range []string{failpoint.StaticPodGivenUp, failpoint.StaticPodBack} {
		n, tk := newNode(t)
		n.sick = true
		hits := 0
		restore := failpoint.OnHit(func(name string) {
			if name == point {
				if hits++; hits == 1 {
					panic(killed{})
				}
			}
		})
		now := tk.Started
		var r updaters.Result
		for i := 0; !r.Failed && i < 2000; i++ {
			func() {
				defer func() {
					if p := recover(); p != nil && p != any(killed{}) {
						panic(p)
					}
				}()
				r, _ = make1(n, &now).Update(t.Context(), tk)
			}()
			now = now.Add(time.Second)
			n.tick()
		}
		restore()
		if hits == 0 || !r.Failed || r.Reason != v1alpha1.ReasonStaticPodNotReady || n.manifest() != text || n.runs != older {
			t.Errorf("%s: %d hits, %+v, %s", point, hits, r, n.manifest())
		}
	}
}
