package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestFaults is one update of three nodes with the faults of a site, one after the other.
// An image is in no bundle, a kubelet does not start, the API server is unavailable for two
// minutes. Then a step hangs, and a node reboots into the old version.
func TestFaults(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("the faults of a whole update take long: make e2e")
	}
	s := start(t, "faults", 3)
	keepStory(t, "faults.json")
	ctx := t.Context()
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, dev))
	must(t, s.Eject(ctx, s.MediumNode, dev))

	step(t, "an image of the release that no bundle brings closes the gate", func(t *testing.T) { missingImage(t, s) })

	_, err = s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Approve(ctx, b))
	_, err = s.Prepare(ctx, b)
	must(t, err)
	must(t, s.Client.Create(ctx, pool()))
	_, err = s.Prepare(ctx, b) // the pool is part of the plan
	must(t, err)

	step(t, "a kubelet that does not come up is undone, and the update halts", func(t *testing.T) { brokenKubelet(t, s) })
	step(t, "an update continues after the API server was unavailable for two minutes", func(t *testing.T) { absentAPIServer(t, s) })
	step(t, "a step that hangs fails at its deadline", func(t *testing.T) { hangingStep(t, s) })
	step(t, "a node that comes back on the old version is found out", func(t *testing.T) { backOnOld(t, s) })
	step(t, "after all that, the update finishes", func(t *testing.T) {
		retry(t, s)
		halts := untilDone(t, s)
		if len(halts) > 0 {
			t.Errorf("it halted again: %v", halts)
		}
		for _, n := range s.Lab.Nodes() {
			atRelease(t, s, n, to)
		}
	})
}

// pool of all nodes: a failed node is restored, a step has five minutes.
func pool() *v1alpha1.UpdatePool {
	one := intstr.FromInt(1)
	return &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.UpdatePoolSpec{
		NodeSelector: metav1.LabelSelector{}, MaxUnavailable: &one, OnFailure: v1alpha1.FailureUndo, StepDeadlineSeconds: 300}}
}

// missingImage: a bundle without the scheduler. kubeadm would find out on a
// drained node; the gate says it before anything is touched.
func missingImage(t *testing.T, s *scenario.Scenario) {
	ctx := t.Context()
	part, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "part.tar", Version: "1.36.2", Without: "kube-scheduler"})
	must(t, err)
	dev, err := s.Insert(ctx, "n3", part)
	must(t, err)
	must(t, s.Approve(ctx, part))
	r, err := s.Run(ctx, "plan", "--to", part.Digest, "--wait", "--timeout", "3m")
	must(t, err)
	if r.Code != 3 || !strings.Contains(r.Stdout+r.Stderr, "kube-scheduler:"+to) {
		t.Errorf("plan: exit code %d, want 3 with the name of the image:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, n := range s.Lab.Nodes() {
		if nu, err := nodeUpdate(t, s, n); err != nil || nu.Spec.Run != nil {
			t.Errorf("node %s was started (%v)", n, err)
		}
		if cordoned, err := s.Cordoned(ctx, n); err != nil || cordoned {
			t.Errorf("node %s was touched (%v)", n, err)
		}
	}
	must(t, s.Eject(ctx, "n3", dev))
	must(t, s.Client.DeleteAllOf(ctx, &v1alpha1.ClusterUpdate{}))
}

// brokenKubelet: n2 has a feature gate that the new kubelet no longer knows, as
// sites have after years.
func brokenKubelet(t *testing.T, s *scenario.Scenario) {
	ctx := t.Context()
	must(t, s.Exec(ctx, "n2", "sh", "-c", "echo 'KUBELET_EXTRA_ARGS=--feature-gates=MemoryManager=true' > /etc/default/kubelet && systemctl restart kubelet"))
	startUpdate(t, s)
	said := halted(t, s)
	if !strings.Contains(said, "n2") || !strings.Contains(said, "MemoryManager") {
		t.Errorf("the halt does not name n2 and what its kubelet complains of: %s", said)
	}
	eventually(t, 3*time.Minute, "n2 was rolled back and runs its old kubelet", func() (bool, string) {
		v, ready, err := s.Kubelet(ctx, "n2")
		nu, nerr := nodeUpdate(t, s, "n2")
		undone := nerr == nil && nu.Status.Run != nil && nu.Status.Run.State == v1alpha1.RunUndone
		return err == nil && ready && undone && v == from, v
	})
	atRelease(t, s, "n1", to)
	atRelease(t, s, "n3", from)
	must(t, s.Exec(ctx, "n2", "sh", "-c", "rm /etc/default/kubelet && systemctl restart kubelet"))
}

// absentAPIServer: while n2 runs its steps the API server goes away.
func absentAPIServer(t *testing.T, s *scenario.Scenario) {
	ctx := t.Context()
	retry(t, s)
	eventually(t, 5*time.Minute, "n2 runs its steps", func() (bool, string) {
		nu, err := nodeUpdate(t, s, "n2")
		return err == nil && nu.Spec.Run != nil && !nu.Spec.Run.Undo && nu.Spec.Run.Attempt > 1, ""
	})
	const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	must(t, s.Exec(ctx, "n1", "mv", manifest, "/root/kube-apiserver.yaml"))
	time.Sleep(2 * time.Minute) // the fault itself
	must(t, s.Exec(ctx, "n1", "mv", "/root/kube-apiserver.yaml", manifest))
	eventually(t, 10*time.Minute, "n2 is done", func() (bool, string) {
		v, ready, err := s.Kubelet(ctx, "n2")
		cordoned, cerr := s.Cordoned(ctx, "n2")
		return err == nil && cerr == nil && ready && !cordoned && v == to, v
	})
}

// hangingStep: kubeadm stands still on n3.
func hangingStep(t *testing.T, s *scenario.Scenario) {
	ctx := t.Context()
	await(t, s, 10*time.Minute, "n3", kubeadm)
	must(t, s.Exec(ctx, "n3", "systemctl", "kill", "-s", "STOP", "refit-run-*"))
	said := halted(t, s)
	if !strings.Contains(said, "n3") || !strings.Contains(said, "kubeadm") {
		t.Errorf("the halt does not name node and step: %s", said)
	}
	atRelease(t, s, "n3", from)
	// Whether the step's end or we take it away: it must not be there for the retry.
	_ = s.Exec(ctx, "n3", "systemctl", "kill", "-s", "KILL", "refit-run-*")
}

// await polls the moment inside the node as fast as it can: some last a second.
func await(t *testing.T, s *scenario.Scenario, limit time.Duration, node string, when moment) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if !awaitMoment(ctx, s, killPoint{node: node, when: when}) {
		t.Fatalf("the moment on node %s never came within %s", node, limit)
	}
}

// backOnOld: a user, or an A/B slot, brings n2's old kubelet back while the
// update is halted.
func backOnOld(t *testing.T, s *scenario.Scenario) {
	ctx := t.Context()
	must(t, s.ReplaceKubelet(ctx, "n2", s.FromRelease()))
	eventually(t, 3*time.Minute, "status names n2 and its old version", func() (bool, string) {
		v, ok := status(t, s)
		if !ok {
			return false, "no answer"
		}
		for _, w := range v.Waiting {
			if w.Reason == v1alpha1.ReasonVersionReverted && strings.Contains(w.Message, "n2") && strings.Contains(w.Message, from) {
				return true, w.Message
			}
		}
		return false, v.Headline
	})
}

// halted follows the update to its halt and gives what status says of it.
func halted(t *testing.T, s *scenario.Scenario) string {
	t.Helper()
	r, err := s.Run(t.Context(), "status", "--watch", "--timeout", "15m")
	must(t, err)
	if r.Code != 5 {
		t.Fatalf("status --watch: exit code %d, want 5 for a halt\n%s", r.Code, r.Stdout)
	}
	return r.Stdout
}

func retry(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	r, err := s.Run(t.Context(), "retry")
	if err != nil || r.Code != 0 {
		t.Fatalf("retry: exit code %d, %v: %s", r.Code, err, r.Stderr)
	}
	time.Sleep(3 * time.Second) // status shows the halt until the controller has seen the retry
}

func atRelease(t *testing.T, s *scenario.Scenario, node, version string) {
	t.Helper()
	v, ready, err := s.Kubelet(t.Context(), node)
	if err != nil || !ready || v != version {
		t.Errorf("node %s: kubelet %s, ready %t (%v), want %s", node, v, ready, err, version)
	}
}
