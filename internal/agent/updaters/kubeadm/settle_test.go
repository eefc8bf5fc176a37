package kubeadm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
)

// settleNode is a control-plane node.
type settleNode struct {
	ticks      int
	apiFrom    int // the API server answers from this tick on
	restartAt  int // the API server's container is another one from then on
	container  cri.Container
	ready      bool
	kubelet    string
	started    time.Time // of the kubelet
	worker     bool
	kubeletErr error
}

func (n *settleNode) Node() string                                      { return "n1" }
func (n *settleNode) KubeletStarted(context.Context) (time.Time, error) { return n.started, nil }
func (n *settleNode) StaticPods() ([]kube.StaticPod, error) {
	if n.worker {
		return nil, nil
	}
	return []kube.StaticPod{{Name: kube.APIServer, Containers: []kube.StaticContainer{{Name: kube.APIServer, Image: "api:v2"}}}}, nil
}
func (n *settleNode) Containers(context.Context) ([]cri.Container, error) {
	c := n.container
	if n.restartAt > 0 && n.ticks >= n.restartAt {
		c.ID += "-again"
	}
	return []cri.Container{c}, nil
}
func (n *settleNode) ImageID(context.Context, string) (string, error) { return "sha256:v2", nil }
func (n *settleNode) APIReady(context.Context) error {
	if n.ticks < n.apiFrom {
		return errors.New("the API server does not answer")
	}
	return nil
}
func (n *settleNode) KubeletHealthy(context.Context) error { return n.kubeletErr }
func (n *settleNode) NodeReady(context.Context) (bool, string, error) {
	return n.ready, n.kubelet, nil
}

func well() *settleNode {
	return &settleNode{started: time.Unix(100, 0), container: cri.Container{ID: "c", Pod: "kube-apiserver-n1", Name: kube.APIServer, ImageID: "sha256:v2", Running: true}, ready: true, kubelet: "v2"}
}

var step = v1alpha1.UpdateStep{ID: "settle", Updater: "settle", Verb: "settle", To: "v2"}

func TestSettleConformance(t *testing.T) {
	updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture {
		n := well()
		n.apiFrom = 10
		now := time.Now()
		u := NewSettle(n)
		u.now = func() time.Time { return now }
		f := &updatertest.Fixture{
			Make: func() updaters.Updater { return u }, // its count begins anew in a new process; tried below
			Task: updaters.Task{Step: step, Started: now},
			Tick: func() { n.ticks++; now = now.Add(time.Second) },
			State: func() string {
				if n.ticks >= n.apiFrom+int(Quiet/time.Second) {
					return "settled"
				}
				return "not"
			},
			From: "not", To: "settled", Reversible: true, Waits: true,
			Break: func() { n.ready = false },
		}
		f.From = f.State()
		return f
	})
}

func TestSettle(t *testing.T) {
	look := func(n *settleNode, seconds int) (updaters.Observation, *SettleUpdater) {
		now := time.Now()
		u := NewSettle(n)
		u.now = func() time.Time { return now }
		var o updaters.Observation
		for range seconds + 1 {
			o, _ = u.Observe(context.Background(), updaters.Task{Step: step})
			n.ticks++
			now = now.Add(time.Second)
		}
		return o, u
	}
	for name, c := range map[string]struct {
		change  func(*settleNode)
		seconds int
		done    bool
		says    string
	}{
		"well for 8 seconds":                     {func(*settleNode) {}, 8, true, ""},
		"well for 7 seconds":                     {func(*settleNode) {}, 7, false, "waiting until"},
		"the API server came back 5 seconds ago": {func(n *settleNode) { n.apiFrom = 5 }, 10, false, "waiting until"},
		"a static pod was restarted meanwhile":   {func(n *settleNode) { n.restartAt = 6 }, 10, false, "waiting until"},
		"a static pod runs the old image":        {func(n *settleNode) { n.container.ImageID = "sha256:v1" }, 20, false, "does not run api:v2 yet"},
		"a static pod does not run":              {func(n *settleNode) { n.container.Running = false }, 20, false, "static pod kube-apiserver does not run"},
		"a pod of another node's name is not it": {func(n *settleNode) { n.container.Pod = "kube-apiserver-n10" }, 20, false, "does not run"},
		"the node is Ready at the old version":   {func(n *settleNode) { n.kubelet = "v1" }, 20, false, "v2 is wanted"},
		"the node is not Ready":                  {func(n *settleNode) { n.ready = false }, 20, false, "Ready"},
		"the kubelet is not healthy":             {func(n *settleNode) { n.kubeletErr = errors.New("kubelet's health: refused") }, 20, false, "kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			n := well()
			c.change(n)
			o, _ := look(n, c.seconds)
			if o.Done != c.done || !strings.Contains(o.Detail, c.says) {
				t.Fatalf("got %+v, want done=%v and %q", o, c.done, c.says)
			}
		})
	}
}

// On a worker nothing but the clock tells one run from the next: that the node
// was well long ago is no proof for this run.
func TestQuietIsCountedAnewInEveryRun(t *testing.T) {
	n := well()
	now := time.Now()
	u := NewSettle(n)
	u.now = func() time.Time { return now }
	task := updaters.Task{UID: "u", Attempt: 1, Step: step, Started: now}
	for range 20 {
		_, _ = u.Update(t.Context(), task)
		now = now.Add(time.Second)
	}
	now = now.Add(time.Hour)
	task.Attempt, task.Started = 2, now
	if r, err := u.Update(t.Context(), task); err != nil || r.Done {
		t.Fatalf("%+v %v at the first look of another run", r, err)
	}
}

// The long wait is for static pods that the new kubelet may still restart.
func TestHowLongANodeMustStaySettled(t *testing.T) {
	t.Parallel()
	created := func(at int64) *settleNode {
		n := well()
		n.container.Created = time.Unix(at, 0)
		return n
	}
	worker := well()
	worker.worker = true
	for name, c := range map[string]struct {
		node *settleNode
		want time.Duration
	}{
		"static pods of the kubelet before": {created(99), Quiet},
		"static pods of this kubelet":       {created(101), shortQuiet},
		"a worker":                          {worker, shortQuiet},
	} {
		if got := NewSettle(c.node).wait(t.Context()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
