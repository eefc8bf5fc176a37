package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// osPlanes is a cluster of three control-plane nodes, which boot OS images.
type osPlanes struct {
	*osSite
	good, bad string // references by digest
	boot      int    // of n1, whose network the registry listens in
	seen      osPlanesSeen
}

// osPlanesSeen is what results/osplanes.json keeps.
type osPlanesSeen struct {
	Kubernetes string
	Moves      []osPlanesMove
	Steps      []outcome
}

// osPlanesMove is an update of the three nodes.
type osPlanesMove struct {
	What, Phase, Node, Reason, Message string
	Boots                              map[string]int
	// MostNotReady is the most nodes that were not Ready at once, of what was seen while an API
	// server answered. With two, etcd has no quorum.
	MostNotReady                   int
	Seconds, APIUnavailableSeconds float64
}

// TestOSImageControlPlanes boots OS images on three control-plane nodes with one etcd. One node boots
// at a time, and the next starts when etcd has all members again. With an image whose kubelet does not
// start, the first node returns by itself, and the others are not started.
func TestOSImageControlPlanes(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that boot OS images take a lab of their own: make e2e")
	}
	w := &osPlanes{osSite: startDeployedSite(t, scenario.Options{Name: "osplanes", Nodes: 3, ControlPlanes: 3, OSImageOnAll: true, From: to, To: to})}
	w.approves(t)
	w.good, w.bad = w.goodAndBad(t)
	keepResult(t, "osplanes.json", func() any {
		w.seen.Kubernetes, w.seen.Steps = w.s.From, played[t.Name()]
		return w.seen
	})
	step(t, "three control-plane nodes boot an image one by one, and etcd keeps its quorum", w.comeUp)
	step(t, "an image with which no kubelet starts: the first node returns by itself, and the others are not started", w.goesBack)
}

func (w *osPlanes) comeUp(t *testing.T) {
	must(t, w.s.Client.Create(t.Context(), &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.UpdatePoolSpec{OSImage: osName, OSReadySeconds: osReady * 3,
		Disruption: []v1alpha1.DisruptionRule{{Files: []string{osNote}, Actions: []v1alpha1.DisruptionAction{{Type: "None"}}}}}}))
	w.noted(t)
	w.takes(t, w.good)
	m := w.move(t, "an image with which the nodes come up", v1alpha1.PhaseDone)
	for _, n := range w.s.Lab.Nodes() {
		if got := w.kubeletOS(t, n); w.booted(t, n) != digestOf(w.good) || got != "Simulated OS 2" || m.Boots[n] != 1 {
			t.Errorf("node %s runs %q after %d boots", n, got, m.Boots[n])
		}
	}
	w.giveUp(t)
}

func (w *osPlanes) goesBack(t *testing.T) {
	w.takes(t, w.bad)
	m := w.move(t, "an image with which no kubelet starts", v1alpha1.PhaseHalted)
	for _, n := range w.s.Lab.Nodes() {
		nu, err := nodeUpdate(t, w.s, n)
		must(t, err)
		if r := nu.Status.Run; r != nil && r.State == v1alpha1.RunFailed {
			m.Node, m.Reason, m.Message = n, r.Reason, r.Message
		}
		if w.booted(t, n) != digestOf(w.good) {
			t.Errorf("node %s has not booted the good image", n)
		}
	}
	w.seen.Moves[len(w.seen.Moves)-1] = m
	if m.Reason != v1alpha1.ReasonOSUnhealthy || !strings.Contains(m.Message, osBadFlag) {
		t.Errorf("%+v", m)
	}
	for n, boots := range m.Boots {
		if want := map[bool]int{true: 2}[n == m.Node]; boots != want {
			t.Errorf("%s booted %d times, not %d", n, boots, want)
		}
	}
	w.giveUp(t)
}

// move plans and applies what the pool wants, until the update is in a phase and etcd has all members.
func (w *osPlanes) move(t *testing.T, what, phase string) osPlanesMove {
	t.Helper()
	w.waiting(t)
	m := osPlanesMove{What: what, Boots: map[string]int{}}
	before := w.boots(t)
	w.boot = before["n1"]
	w.plan(t)
	watch, stop := context.WithCancel(t.Context())
	defer stop()
	conf, err := w.s.Lab.RESTConfig()
	must(t, err)
	api, began := scenario.WatchAPI(watch, conf.Host+"/readyz"), time.Now()
	startUpdate(t, w.s)
	eventually(t, 15*time.Minute, "the update is "+phase, func() (bool, string) {
		if now := w.boots(t)["n1"]; now != w.boot {
			w.boot = now
			w.listen(t)
		}
		m.MostNotReady = max(m.MostNotReady, w.notReady(t))
		var l v1alpha1.ClusterUpdateList
		if err := w.s.Client.List(t.Context(), &l); err != nil || len(l.Items) != 1 {
			return false, fmt.Sprint(len(l.Items), " updates, ", err)
		}
		m.Phase = l.Items[0].Status.Phase
		return m.Phase == phase, fmt.Sprintf("%s %+v", m.Phase, l.Items[0].Status.Blockers)
	})
	for _, n := range w.s.Lab.Nodes() {
		ready(t, w.s, n)
	}
	w.hasAllMembers(t)
	m.Seconds, m.APIUnavailableSeconds = time.Since(began).Seconds(), api.Unavailable().Seconds()
	for n, boots := range w.boots(t) {
		m.Boots[n] = boots - before[n]
	}
	if m.MostNotReady > 1 {
		t.Errorf("%d of three control-plane nodes were not Ready at once", m.MostNotReady)
	}
	w.seen.Moves = append(w.seen.Moves, m)
	if w.boots(t)["n1"] != w.boot {
		w.listen(t)
	}
	return m
}

// notReady counts the nodes that are not Ready; none while no API server says so.
func (w *osPlanes) notReady(t *testing.T) (count int) {
	t.Helper()
	var l corev1.NodeList
	if err := w.s.Client.List(t.Context(), &l); err != nil {
		return 0
	}
	for i := range l.Items {
		for _, c := range l.Items[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				count++
			}
		}
	}
	return count
}

// hasAllMembers waits until the static pods of etcd pass their own readiness probe.
func (w *osPlanes) hasAllMembers(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, "etcd has three members that are ready", func() (bool, string) {
		var l corev1.PodList
		err := w.s.Client.List(t.Context(), &l, client.InNamespace("kube-system"), client.MatchingLabels{"component": "etcd"})
		count := 0
		for i := range l.Items {
			for _, c := range l.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					count++
				}
			}
		}
		return err == nil && count == 3, fmt.Sprint(count, " of ", len(l.Items), " ", err)
	})
}
