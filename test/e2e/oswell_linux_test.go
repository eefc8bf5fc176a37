package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
)

const (
	// osReady is how long the pool gives a node to be Ready with a new image, in seconds.
	osReady = 60
	// osBadFlag is one that no kubelet knows.
	osBadFlag = "--no-such-flag"
	// osNote is a file of the pool's NodeConfig that costs nothing.
	osNote = "/etc/edge/note"
)

// osWell is a lab whose workers are given an image with which the kubelet does not start.
type osWell struct {
	*osSite
	good, bad string // references by digest
	first     string // the worker that was taken first
	seen      osWellSeen
}

// osWellSeen is what results/oswell.json keeps.
type osWellSeen struct {
	Kubernetes   string
	ReadySeconds int
	// Failures are the runs that ended, each with what became of the node.
	Failures []osWellFailed
	Steps    []outcome
}

type osWellFailed struct {
	What, Node, State, Reason, Message string
	// Boots of the node and of the other worker meanwhile.
	Boots, BootsOfOther int
	BootedBefore        string
	Booted              string
	KubeletOS           string
	ReadyAgain          bool
	// APIAway: no API server answered from the boot into the image until the node had
	// rolled back.
	APIAway bool
	Seconds float64
}

// TestOSImageKubeletDead boots an image with which the kubelet does not start. The node
// rolls back by itself, also while no API server answers. It reports the kubelet's own
// message, and the pool halts. refit does not try the image there again before a person
// asks for it.
func TestOSImageKubeletDead(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that boot OS images take a lab of their own: make e2e")
	}
	w := &osWell{osSite: startDeployedSite(t, scenario.Options{Name: "oswell", Nodes: 3})}
	w.good, w.bad = w.goodAndBad(t)
	w.keep(t)
	step(t, "an image with which the nodes come up is booted by both workers", w.comesUp)
	step(t, "an image with which the kubelet does not start: the first worker rolls back by itself, and reports why", w.goesBack)
	step(t, "it is not tried again by itself, although the pool gives three attempts", w.notAgain)
	step(t, "a person tries it again, and no API server answers: the node rolls back all the same", w.withoutAPI)
	step(t, "another update with the same image is not started", w.gateCloses)
	step(t, "the good image is wanted again: nothing is left of it", w.over)
}

func (w *osWell) keep(t *testing.T) {
	keepResult(t, "oswell.json", func() any {
		w.seen.Kubernetes, w.seen.ReadySeconds, w.seen.Steps = from, osReady, played[t.Name()]
		return w.seen
	})
}

// boots is how often the nodes have booted, as the lab's mains count.
func (w *osSite) boots(t *testing.T) map[string]int {
	t.Helper()
	s, err := w.s.Lab.Status(t.Context())
	must(t, err)
	out := map[string]int{}
	for _, n := range s.Nodes {
		out[n.Name] = n.Boots
	}
	return out
}

// pools: the control plane's, and one of the workers that names the OSImage.
func (w *osSite) pools(t *testing.T, change func(*v1alpha1.UpdatePoolSpec)) {
	t.Helper()
	plane := metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpExists}
	worker := plane
	worker.Operator = metav1.LabelSelectorOpDoesNotExist
	selects := func(r metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	}
	workers := v1alpha1.UpdatePoolSpec{NodeSelector: selects(worker), OSImage: osName,
		Disruption: []v1alpha1.DisruptionRule{{Files: []string{osNote}, Actions: []v1alpha1.DisruptionAction{{Type: "None"}}}}}
	change(&workers)
	must(t, w.s.Client.Create(t.Context(), &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: selects(plane)}}))
	must(t, w.s.Client.Create(t.Context(), &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: workers}))
}

// noted is a NodeConfig of the pool with one file.
func (w *osSite) noted(t *testing.T) {
	t.Helper()
	text := "of the pool\n"
	must(t, w.s.Client.Create(t.Context(), &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{osName},
		Files: []v1alpha1.NodeFile{{Path: osNote, Contents: &v1alpha1.FileContents{Inline: &text}}}}}))
}

// takes has the pool want a finished image, and waits until it does.
func (w *osSite) takes(t *testing.T, image string) {
	t.Helper()
	var o v1alpha1.OSImage
	err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	o.Name, o.Spec = osName, v1alpha1.OSImageSpec{Image: image}
	if err == nil {
		err = w.s.Client.Update(t.Context(), &o)
	} else {
		err = w.s.Client.Create(t.Context(), &o)
	}
	must(t, err)
	w.image(t, func(p v1alpha1.OSImagePool) bool { return p.Image == image })
}

func (w *osWell) comesUp(t *testing.T) {
	w.pools(t, func(p *v1alpha1.UpdatePoolSpec) {
		p.OSReadySeconds, p.Attempts, p.Canary = osReady, 3, &v1alpha1.Canary{Nodes: intstr.FromInt32(1)}
	})
	w.noted(t)
	w.takes(t, w.good)
	w.moves(t, "an image with which the nodes come up", func(string) expected {
		return expected{digest: digestOf(w.good), os: "Simulated OS 2", restarted: true}
	})
}

// ended waits until a worker's run has failed with another attempt than before, and
// notes what became of the node.
func (w *osWell) ended(t *testing.T, what string, before map[string]int, begin time.Time, attempt int32, away bool) {
	t.Helper()
	var run v1alpha1.NodeRunStatus
	eventually(t, 8*time.Minute, "a run has ended", func() (bool, string) {
		said := ""
		for _, n := range osWorkers {
			nu, err := nodeUpdate(t, w.s, n)
			if err != nil || nu.Status.Run == nil {
				continue
			}
			said += fmt.Sprintf("%s %d %s: %s; ", n, nu.Status.Run.Attempt, nu.Status.Run.State, nu.Status.Run.Message)
			if nu.Status.Run.State == v1alpha1.RunFailed && nu.Status.Run.Attempt > attempt {
				w.first, run = n, *nu.Status.Run
			}
		}
		return run.State != "", said
	})
	other := osWorkers[0]
	if other == w.first {
		other = osWorkers[1]
	}
	f := osWellFailed{What: what, Node: w.first, State: string(run.State), Reason: run.Reason, Message: run.Message, BootedBefore: digestOf(w.good), APIAway: away}
	now := w.boots(t)
	f.Boots, f.BootsOfOther, f.Booted = now[w.first]-before[w.first], now[other]-before[other], w.booted(t, w.first)
	eventually(t, 2*time.Minute, "it is Ready again", func() (bool, string) {
		_, ready, err := w.s.Kubelet(t.Context(), w.first)
		f.ReadyAgain = ready
		return ready && err == nil && w.kubeletOS(t, w.first) == "Simulated OS 2", fmt.Sprint(ready, err)
	})
	f.KubeletOS, f.Seconds = w.kubeletOS(t, w.first), time.Since(begin).Seconds()
	w.seen.Failures = append(w.seen.Failures, f)
	t.Log(run.Message)
	if f.Reason != v1alpha1.ReasonOSUnhealthy || f.Boots != 2 || f.BootsOfOther != 0 || f.Booted != f.BootedBefore {
		t.Errorf("%+v", f)
	}
	for _, words := range []string{"rolled back to ", "1m0s", "kubelet.service is ", osBadFlag} {
		if !strings.Contains(run.Message, words) {
			t.Errorf("%q is not in: %s", words, run.Message)
		}
	}
	nu, err := nodeUpdate(t, w.s, w.first)
	must(t, err)
	if got := nu.Status.Observed.Fields[model.FieldOSFailed]; !strings.HasPrefix(got, digestOf(w.bad)) {
		t.Errorf("%s is %q", model.FieldOSFailed, got)
	}
}

func (w *osWell) goesBack(t *testing.T) {
	w.takes(t, w.bad)
	w.waiting(t)
	before, begin := w.boots(t), time.Now()
	w.plan(t)
	r, err := w.s.Run(t.Context(), "apply", "--yes", "--timeout", "15m")
	must(t, err)
	if r.Code != 5 || !strings.Contains(r.Stdout+r.Stderr, v1alpha1.ReasonOSUnhealthy) {
		t.Errorf("refit apply: exit code %d, want 5 and %s:\n%s%s", r.Code, v1alpha1.ReasonOSUnhealthy, r.Stdout, r.Stderr)
	}
	w.ended(t, "the first time", before, begin, 0, false)
	if cordoned, err := w.s.Cordoned(t.Context(), w.first); err != nil || !cordoned {
		t.Errorf("a node that failed takes pods again (%v)", err)
	}
}

func (w *osWell) notAgain(t *testing.T) {
	before := w.boots(t)
	time.Sleep(90 * time.Second) // three times the pause before another attempt
	nu, err := nodeUpdate(t, w.s, w.first)
	must(t, err)
	if now := w.boots(t); nu.Spec.Run == nil || nu.Spec.Run.Attempt != 1 || now[w.first] != before[w.first] {
		t.Errorf("%+v, booted %d times", nu.Spec.Run, now[w.first]-before[w.first])
	}
}

// apiServer's manifest, and where it is out of its kubelet's sight.
const (
	apiManifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	apiAside    = "/var/lib/kube-apiserver.aside"
)

func (w *osWell) withoutAPI(t *testing.T) {
	before, begin := w.boots(t), time.Now()
	r, err := w.s.Run(t.Context(), "retry", "--node", w.first)
	must(t, err)
	if r.Code != 0 {
		t.Fatalf("refit retry: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	until := func(boots int, what string) {
		eventually(t, 5*time.Minute, what, func() (bool, string) {
			n := w.boots(t)[w.first] - before[w.first]
			return n >= boots, fmt.Sprint(n)
		})
	}
	until(1, "the image is booted again")
	w.run(t, "n1", "mv", apiManifest, apiAside)
	until(2, "the node rolls back, and no API server answers")
	var l corev1.NodeList
	away := w.s.Client.List(t.Context(), &l) != nil
	w.run(t, "n1", "mv", apiAside, apiManifest)
	if !away {
		t.Error("the API server answered")
	}
	eventually(t, 4*time.Minute, "the API server is back", func() (bool, string) {
		err := w.s.Client.List(t.Context(), &l)
		return err == nil, fmt.Sprint(err)
	})
	w.ended(t, "tried again by a person, without the API server", before, begin, 1, away)
}

// gateCloses: the first update is given up by a person. One more of the same image
// waits for a person's word.
func (w *osWell) gateCloses(t *testing.T) {
	w.giveUp(t)
	r, err := w.s.Run(t.Context(), "plan")
	must(t, err)
	t.Logf("refit plan: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	eventually(t, 2*time.Minute, "the gate says why", func() (bool, string) {
		r, err := w.s.Run(t.Context(), "gate", "-o", "json")
		return err == nil && r.Code == 3 && strings.Contains(r.Stdout, "rolled itself back") && strings.Contains(r.Stdout, `"drift"`), r.Stdout
	})
	w.giveUp(t)
}

func (w *osSite) patch(t *testing.T, o client.Object, patch string) {
	t.Helper()
	must(t, w.s.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// giveUp deletes all updates, and waits until no node is cordoned for one.
func (w *osSite) giveUp(t *testing.T) {
	t.Helper()
	var all v1alpha1.ClusterUpdateList
	must(t, w.s.Client.List(t.Context(), &all))
	for i := range all.Items {
		u := &all.Items[i]
		w.patch(t, u, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationAllowDelete))
		must(t, w.s.Client.Delete(t.Context(), u))
	}
	eventually(t, 2*time.Minute, "no node is cordoned", func() (bool, string) {
		var us v1alpha1.ClusterUpdateList
		var l corev1.NodeList
		if err := w.s.Client.List(t.Context(), &us); err != nil || len(us.Items) > 0 {
			return false, fmt.Sprint(len(us.Items), " updates, ", err)
		}
		if err := w.s.Client.List(t.Context(), &l); err != nil {
			return false, err.Error()
		}
		for i := range l.Items {
			if l.Items[i].Spec.Unschedulable {
				return false, l.Items[i].Name
			}
		}
		return true, ""
	})
}

func (w *osWell) over(t *testing.T) {
	before := w.boots(t)
	w.takes(t, w.good)
	eventually(t, 3*time.Minute, "all workers are as wanted", func() (bool, string) {
		var c v1alpha1.NodeConfig
		err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &c)
		return err == nil && c.Status.ObservedGeneration == c.Generation && c.Status.Nodes == 2 && c.Status.Current == 2, fmt.Sprintf("%+v", c.Status)
	})
	if now := w.boots(t); now["n2"] != before["n2"] || now["n3"] != before["n3"] {
		t.Errorf("%v, before %v", now, before)
	}
	nu, err := nodeUpdate(t, w.s, w.first)
	must(t, err)
	eventually(t, 2*time.Minute, "the status reports no failure any more", func() (bool, string) {
		nu, err = nodeUpdate(t, w.s, w.first)
		return err == nil && nu.Status.Observed.Fields[model.FieldOSFailed] == "", fmt.Sprint(nu.Status.Observed.Fields[model.FieldOSFailed], err)
	})
}
