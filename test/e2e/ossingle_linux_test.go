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
	"github.com/refit-dev/refit/internal/model"
)

// osOnly is the only node of the cluster.
const osOnly = "n1"

// osSingle is a cluster of one node, which has the control plane and boots OS images.
type osSingle struct {
	*osSite
	good, bad string // references by digest
	seen      osSingleSeen
}

// osSingleSeen is what results/ossingle.json keeps.
type osSingleSeen struct {
	Kubernetes string
	Moves      []osSingleMove
	Steps      []outcome
}

// osSingleMove is an update of the only node.
type osSingleMove struct {
	What, State, Reason, Message   string
	BootedBefore, Booted           string
	KubeletOS                      string
	Boots                          int
	Seconds, APIUnavailableSeconds float64
	// Kept: an object that was written before is in etcd, and the node takes pods. A node that failed
	// stays cordoned.
	Kept bool
}

// TestOSImageSingleNode boots OS images on the only node of a cluster, which runs etcd, the API server
// and refit's controller. It comes up with a good image. With one whose kubelet does not start, no API
// server answers: the node returns by itself, with all that etcd had.
func TestOSImageSingleNode(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("nodes that boot OS images take a lab of their own: make e2e")
	}
	w := &osSingle{osSite: startDeployedSite(t, scenario.Options{Name: "ossingle", Nodes: 1, From: to, To: to})}
	w.good, w.bad = w.goodAndBad(t)
	keepResult(t, "ossingle.json", func() any {
		w.seen.Kubernetes, w.seen.Steps = w.s.From, played[t.Name()]
		return w.seen
	})
	step(t, "the only node boots an image, and has its control plane again", w.comesUp)
	step(t, "an image with which its kubelet does not start: the node returns by itself, and reports why", w.goesBack)
	step(t, "the good image is wanted again: nothing restarts", w.over)
}

func (w *osSingle) comesUp(t *testing.T) {
	if got := w.kubeletOS(t, osOnly); got != "Simulated OS 1" {
		t.Fatalf("the node runs %q, not the stock OS", got)
	}
	must(t, w.s.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: osName}, Data: map[string]string{"before": "the boot"}}))
	must(t, w.s.Client.Create(t.Context(), &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: osName}, Spec: v1alpha1.UpdatePoolSpec{OSImage: osName, OSReadySeconds: osReady * 3,
		Disruption: []v1alpha1.DisruptionRule{{Files: []string{osNote}, Actions: []v1alpha1.DisruptionAction{{Type: "None"}}}}}}))
	w.noted(t)
	w.takes(t, w.good)
	m := w.move(t, "an image with which the node comes up", 0)
	if m.State != string(v1alpha1.RunSucceeded) || m.Booted != digestOf(w.good) || m.KubeletOS != "Simulated OS 2" || m.Boots != 1 || !m.Kept {
		t.Errorf("%+v", m)
	}
}

func (w *osSingle) goesBack(t *testing.T) {
	w.takes(t, w.bad)
	m := w.move(t, "an image with which the kubelet does not start", 5)
	if m.State != string(v1alpha1.RunFailed) || m.Reason != v1alpha1.ReasonOSUnhealthy || m.Booted != m.BootedBefore || m.KubeletOS != "Simulated OS 2" || m.Boots != 2 {
		t.Errorf("%+v", m)
	}
	for _, words := range []string{"rolled back to ", "kubelet.service is ", osBadFlag} {
		if !strings.Contains(m.Message, words) {
			t.Errorf("%q is not in: %s", words, m.Message)
		}
	}
	nu, err := nodeUpdate(t, w.s, osOnly)
	must(t, err)
	if got := nu.Status.Observed.Fields[model.FieldOSFailed]; !strings.HasPrefix(got, digestOf(w.bad)) {
		t.Errorf("%s is %q", model.FieldOSFailed, got)
	}
}

// move plans and applies what the pool wants, and says what became of the node.
func (w *osSingle) move(t *testing.T, what string, code int) osSingleMove {
	t.Helper()
	w.waiting(t)
	m := osSingleMove{What: what, BootedBefore: w.booted(t, osOnly)}
	before := w.boots(t)[osOnly]
	w.plan(t)
	watch, stop := context.WithCancel(t.Context())
	defer stop()
	conf, err := w.s.Lab.RESTConfig()
	must(t, err)
	api, begin := scenario.WatchAPI(watch, conf.Host+"/readyz"), time.Now()
	r, err := w.s.Run(t.Context(), "apply", "--yes", "--timeout", "15m")
	must(t, err)
	if r.Code != code {
		t.Errorf("refit apply: exit code %d, want %d:\n%s%s", r.Code, code, r.Stdout, r.Stderr)
	}
	eventually(t, 5*time.Minute, "the run has ended, and the node is Ready", func() (bool, string) {
		nu, err := nodeUpdate(t, w.s, osOnly)
		if err != nil || nu.Status.Run == nil {
			return false, fmt.Sprint("no run, ", err)
		}
		m.State, m.Reason, m.Message = string(nu.Status.Run.State), nu.Status.Run.Reason, nu.Status.Run.Message
		_, ready, err := w.s.Kubelet(t.Context(), osOnly)
		ended := m.State == string(v1alpha1.RunSucceeded) || m.State == string(v1alpha1.RunFailed)
		return ended && ready && err == nil, fmt.Sprintf("%s %s: %s; ready %v, %v", m.State, m.Reason, m.Message, ready, err)
	})
	m.Seconds, m.APIUnavailableSeconds = time.Since(begin).Seconds(), api.Unavailable().Seconds()
	m.Boots, m.Booted, m.KubeletOS = w.boots(t)[osOnly]-before, w.booted(t, osOnly), w.kubeletOS(t, osOnly)
	var kept corev1.ConfigMap
	err = w.s.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: osName}, &kept)
	cordoned, cordonErr := w.s.Cordoned(t.Context(), osOnly)
	m.Kept = err == nil && cordonErr == nil && kept.Data["before"] == "the boot" && !cordoned
	if err != nil || kept.Data["before"] != "the boot" {
		t.Errorf("etcd has lost what was written before: %+v, %v", kept.Data, err)
	}
	w.seen.Moves = append(w.seen.Moves, m)
	w.listen(t) // the network of the node is that of its boot
	return m
}

func (w *osSingle) over(t *testing.T) {
	before := w.boots(t)[osOnly]
	w.giveUp(t)
	w.takes(t, w.good)
	eventually(t, 3*time.Minute, "the node is as wanted", func() (bool, string) {
		var c v1alpha1.NodeConfig
		err := w.s.Client.Get(t.Context(), client.ObjectKey{Name: osName}, &c)
		return err == nil && c.Status.ObservedGeneration == c.Generation && c.Status.Nodes == 1 && c.Status.Current == 1, fmt.Sprintf("%+v, %v", c.Status, err)
	})
	if now := w.boots(t)[osOnly]; now != before {
		t.Errorf("%d boots", now-before)
	}
	eventually(t, 2*time.Minute, "the status reports no failure any more, and the node takes pods", func() (bool, string) {
		nu, err := nodeUpdate(t, w.s, osOnly)
		if err != nil {
			return false, err.Error()
		}
		cordoned, err := w.s.Cordoned(t.Context(), osOnly)
		return err == nil && !cordoned && nu.Status.Observed.Fields[model.FieldOSFailed] == "", fmt.Sprint(nu.Status.Observed.Fields[model.FieldOSFailed], cordoned, err)
	})
}
