package clusterapi

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
)

func done(a hooks.Answer) bool { return !a.Failed && a.RetryAfter == 0 }

func (w *testClusters) is(a hooks.Answer, failed bool, want string) {
	w.t.Helper()
	if done(a) || a.Failed != failed || !strings.Contains(a.Message, want) {
		w.t.Errorf("failed %v, again in %d s: %q; want %v %q", a.Failed, a.RetryAfter, a.Message, failed, want)
	}
}

func (w *testClusters) skips(name string) bool {
	a := w.annotations(name)
	_, ours := a[v1alpha1.AnnotationRemediationHeld]
	_, skips := a[annotationSkipRemediation]
	if ours != skips {
		w.t.Errorf("the mark and whose it is do not go together: %v", a)
	}
	return skips
}

// One machine from the first call to the last, every call answered by another
// replica that knows nothing.
func TestAMachineIsDoneWhenItsNodeWasSeen(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	w.machine("m1", newVersion, true)
	w.node("node-m1", oldVersion, oldVersion)
	ask := func() hooks.Answer {
		t.Helper()
		w.s = w.server()
		return w.update("m1", newVersion)
	}
	w.is(ask(), false, "BundleNotFound: no Bundle in the machine's cluster has Kubernetes v1.36.3")
	if w.skips("m1") {
		t.Error("the health checker is not held back while a machine only waits")
	}
	w.bundle("found", newVersion, "")
	w.is(ask(), false, "BundleNotApproved: Bundle found has Kubernetes v1.36.3, but its spec.digest is empty")
	w.bundle("approved", newVersion, digestA)
	w.is(ask(), false, "was created in its cluster")
	if !w.skips("m1") {
		t.Error("while a machine moves the health checker leaves it alone (trap 7)")
	}
	us := w.updates()
	if len(us) != 1 || us[0].Spec.Bundle != digestA || us[0].Spec.Start != v1alpha1.StartImmediate || len(us[0].Spec.Nodes) != 1 || us[0].Spec.Nodes[0] != "node-m1" ||
		us[0].Annotations[v1alpha1.AnnotationMachine] != "default/m1" {
		t.Fatalf("one update of that node from the approved bundle: %+v", us)
	}
	for range 3 {
		w.is(ask(), false, "is planning")
	}
	w.phase(v1alpha1.PhaseBlocked, v1alpha1.Blocker{Reason: v1alpha1.ReasonVersionSkew, Message: "node node-m1 would run kubelet v1.36.3 under an API server that stays at v1.35.4", Fix: "move the control plane first"})
	w.is(ask(), false, "VersionSkew: node node-m1 would run kubelet v1.36.3 under an API server that stays at v1.35.4 (move the control plane first)")
	if w.skips("m1") {
		t.Error("what waits for a person is no move")
	}
	w.phase(v1alpha1.PhaseUpdating, v1alpha1.Blocker{Reason: v1alpha1.ReasonUpdating, Message: "node node-m1 runs step kubelet"})
	w.is(ask(), false, "Updating: node node-m1 runs step kubelet")
	if m := w.plan("machinedeployment.pool").Status.Machines; len(m) != 1 || m[0].Name != "m1" || m[0].Node != "node-m1" || m[0].Updater != "kubernetes" || m[0].Failed {
		t.Errorf("%+v", m)
	}
	w.phase(v1alpha1.PhaseDone)
	w.is(ask(), true, "ClusterUpdate machine-m1-") // trap 9: the end of a job proves nothing
	w.node("node-m1", newVersion, oldVersion)
	w.is(ask(), false, "its agent observes kubelet v1.35.4")
	w.node("node-m1", newVersion, "")
	w.is(ask(), false, "no agent has reported")
	w.node("node-m1", newVersion, newVersion)
	if a := ask(); !done(a) {
		t.Fatalf("seen by kubelet and agent: %+v", a)
	}
	if w.skips("m1") || len(w.plan("machinedeployment.pool").Status.Machines) != 0 {
		t.Error("nothing of ours is left on a machine that is done")
	}
	if a := ask(); !done(a) || len(w.updates()) != 1 {
		t.Errorf("asked again it is still done: %+v", a)
	}
	if len(w.s.reported) > 0 {
		t.Errorf("reported an error although nothing failed: %v", w.s.reported)
	}
}

// The kubelet of k0s reports the same version for each build of a release: the agent knows which it is.
func TestABuildThatTheKubeletHides(t *testing.T) {
	t.Parallel()
	const kubelet, before, after = "v1.36.3+k0s", "v1.36.3+k0s.0", "v1.36.3+k0s.1"
	w := newTestClusters(t)
	w.machine("m1", after, true)
	w.bundle("approved", after, digestA)
	w.node("node-m1", kubelet, before)
	w.is(w.update("m1", after), false, "was created in its cluster")
	w.phase(v1alpha1.PhaseDone)
	w.is(w.update("m1", after), true, "its kubelet reports "+before)
	w.node("node-m1", kubelet, after)
	if a := w.update("m1", after); !done(a) {
		t.Errorf("seen by its agent: %+v", a)
	}
}

func TestFailureIsReportedAndReleasesTheHealthCheck(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	w.machine("m1", newVersion, true)
	w.node("node-m1", oldVersion, oldVersion)
	w.bundle("approved", newVersion, digestA)
	w.update("m1", newVersion)
	w.phase(v1alpha1.PhaseHalted, v1alpha1.Blocker{Reason: v1alpha1.ReasonStepFailed, Message: "node node-m1: step kubelet: it does not start"})
	w.is(w.update("m1", newVersion), true, "StepFailed: node node-m1: step kubelet: it does not start (fix the cause and retry ClusterUpdate machine-m1-")
	if w.skips("m1") {
		t.Error("a failed machine may be replaced by the health checker")
	}
	if m := w.plan("machinedeployment.pool").Status.Machines; len(m) != 1 || !m[0].Failed || m[0].Since == nil {
		t.Errorf("%+v", m)
	}
	since := w.plan("machinedeployment.pool").Status.Machines[0].Since
	version := w.plan("machinedeployment.pool").ResourceVersion
	w.now = w.now.Add(time.Minute)
	first, again := w.update("m1", newVersion), w.update("m1", newVersion)
	if first.Message != again.Message || w.plan("machinedeployment.pool").ResourceVersion != version || !w.plan("machinedeployment.pool").Status.Machines[0].Since.Equal(since) {
		t.Error("a call that is repeated every second writes nothing and says the same")
	}
	w.phase(v1alpha1.PhaseUpdating) // a person retried it
	w.is(w.update("m1", newVersion), false, "is updating")
}

// The body only says which machine is meant.
func TestACallerIsNotBelieved(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		prepare func(*testClusters)
		version string
		want    string
	}{
		"a machine that is not in an update":  {func(w *testClusters) { w.machine("m1", newVersion, false) }, newVersion, "not marked for an in-place update"},
		"a machine that wants something else": {func(w *testClusters) { w.machine("m1", oldVersion, true) }, newVersion, "has changed since"},
		"a machine that is not there":         {func(*testClusters) {}, newVersion, "not exist any more"},
		"a machine without a Node": {func(w *testClusters) {
			o := w.machine("m1", newVersion, true)
			delete(o.Object, "status")
			if err := w.mgmt.Update(w.t.Context(), o); err != nil {
				w.t.Fatal(err)
			}
		}, newVersion, "the Machine has no Node yet"},
		"a cluster without a kubeconfig": {func(w *testClusters) {
			w.machine("m1", newVersion, true)
			if err := w.mgmt.Delete(w.t.Context(), secret("c1-kubeconfig")); err != nil {
				w.t.Fatal(err)
			}
		}, newVersion, "ClusterUnreachable: Secret default/c1-kubeconfig with the kubeconfig of cluster c1 cannot be read: NotFound (create it"},
		"an unreachable API server": {func(w *testClusters) {
			w.machine("m1", newVersion, true)
			w.failSite = errors.New("dial tcp 10.0.0.1:6443: connection refused")
		}, newVersion, "ClusterUnreachable: the API server of cluster c1 does not answer"},
		"an API server that refuses": {func(w *testClusters) {
			w.machine("m1", newVersion, true)
			w.failSite = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("secret reasons"))
		}, newVersion, "the API server of cluster c1 refuses refit: Forbidden"},
		"a node that left": {func(w *testClusters) { w.machine("m1", newVersion, true) }, newVersion, "NodeNotFound: node node-m1 does not exist in its cluster"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestClusters(t)
			w.bundle("approved", newVersion, digestA)
			tc.prepare(w)
			w.is(w.update("m1", tc.version), false, tc.want)
			if us := w.updates(); len(us) != 0 {
				t.Errorf("a node is moved: %+v", us)
			}
		})
	}
}

func secret(name string) client.Object {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	return o
}

// A kill at any write: every failing write is tried again at the next call, and
// the end is the same.
func TestEveryWriteMayFailOnce(t *testing.T) {
	t.Parallel()
	for _, fail := range []string{"status InPlacePlan", "get InPlacePlan", "patch Machine", "get Machine", "get Secret", "get MachineDeployment"} {
		t.Run(fail, func(t *testing.T) {
			t.Parallel()
			w := newTestClusters(t)
			w.machine("m1", newVersion, true)
			w.node("node-m1", oldVersion, oldVersion)
			w.bundle("approved", newVersion, digestA)
			for _, phase := range []string{"", v1alpha1.PhaseUpdating, v1alpha1.PhaseDone} {
				if phase == v1alpha1.PhaseDone {
					w.node("node-m1", newVersion, newVersion)
				}
				if phase != "" {
					w.phase(phase)
				}
				w.fail[fail] = errors.New("away")
				w.s = w.server()
				// Where nothing has to be written or read of that kind it may be done.
				if a := w.update("m1", newVersion); a.Failed || done(a) && phase != v1alpha1.PhaseDone {
					t.Errorf("%q: %+v", phase, a)
				}
				delete(w.fail, fail)
				w.s = w.server()
				if a := w.update("m1", newVersion); a.Failed || done(a) != (phase == v1alpha1.PhaseDone) {
					t.Errorf("%q afterwards: %+v", phase, a)
				}
			}
			if w.skips("m1") || len(w.plan("machinedeployment.pool").Status.Machines) != 0 || len(w.updates()) != 1 {
				t.Errorf("left behind: %v %v", w.annotations("m1"), w.plan("machinedeployment.pool").Status.Machines)
			}
		})
	}
}

// Every end of an update releases the Machine health check.
func TestTheHealthCheckerIsLetGo(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *testClusters {
		w := newTestClusters(t)
		w.machine("m1", newVersion, true)
		w.node("node-m1", oldVersion, oldVersion)
		w.bundle("approved", newVersion, digestA)
		w.update("m1", newVersion)
		if !w.skips("m1") {
			t.Fatal("not held")
		}
		return w
	}
	machineOf := func(w *testClusters) client.Object {
		m, err := w.s.readMachine(w.t.Context(), "default", "m1")
		if err != nil {
			w.t.Fatal(err)
		}
		return m.Unstructured
	}
	sweep := func(w *testClusters) {
		w.t.Helper()
		if err := w.server().Sweep(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	t.Run("Cluster API ended the update while refit was stopped", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		o := machineOf(w)
		a := o.GetAnnotations()
		delete(a, annotationPendingHooks)
		o.SetAnnotations(a)
		if err := w.mgmt.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		sweep(w)
		if w.skips("m1") || len(w.plan("machinedeployment.pool").Status.Machines) != 0 {
			t.Error("left behind")
		}
	})
	t.Run("no call for an hour", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		w.now = w.now.Add(holdTime / 4)
		w.update("m1", newVersion)
		first := w.annotations("m1")[v1alpha1.AnnotationRemediationHeld]
		w.now = w.now.Add(holdTime / 2)
		w.update("m1", newVersion)
		if again := w.annotations("m1")[v1alpha1.AnnotationRemediationHeld]; again == first {
			t.Error("the mark is renewed while it is asked for")
		}
		sweep(w)
		if !w.skips("m1") {
			t.Error("the mark holds until its expiry")
		}
		w.now = w.now.Add(holdTime + time.Second)
		sweep(w)
		if w.skips("m1") || len(w.plan("machinedeployment.pool").Status.Machines) != 1 {
			t.Error("expired marks come off; the machine is still in its update")
		}
	})
	t.Run("the machine was deleted", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		w.phase(v1alpha1.PhaseUpdating)
		if err := w.mgmt.Delete(t.Context(), machineOf(w)); err != nil {
			t.Fatal(err)
		}
		sweep(w)
		if len(w.updates()) != 0 || len(w.plan("machinedeployment.pool").Status.Machines) != 0 {
			t.Errorf("left behind: %+v", w.updates())
		}
	})
	t.Run("a mark that a person made stays", func(t *testing.T) {
		t.Parallel()
		w := newTestClusters(t)
		w.annotate(w.machine("m1", newVersion, true), annotationSkipRemediation, "mine")
		w.node("node-m1", oldVersion, oldVersion)
		w.bundle("approved", newVersion, digestA)
		w.update("m1", newVersion)
		w.node("node-m1", newVersion, newVersion)
		w.phase(v1alpha1.PhaseDone)
		if a := w.update("m1", newVersion); !done(a) {
			t.Fatalf("%+v", a)
		}
		if a := w.annotations("m1"); a[annotationSkipRemediation] != "mine" || a[v1alpha1.AnnotationRemediationHeld] != "" {
			t.Errorf("%v", a)
		}
	})
}

// Another version is wanted: an earlier update that has not started is deleted.
func TestAWishThatChanged(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	w.machine("m1", newVersion, true)
	w.node("node-m1", oldVersion, oldVersion)
	w.bundle("a", newVersion, digestA)
	w.bundle("b", "v1.36.4", strings.Replace(digestA, "aa", "bb", 1))
	w.update("m1", newVersion)
	first := w.updates()[0].Name
	m, err := w.s.readMachine(t.Context(), "default", "m1")
	if err != nil {
		t.Fatal(err)
	}
	m.Object["spec"].(map[string]any)["version"] = "v1.36.4"
	if err := w.mgmt.Update(t.Context(), m.Unstructured); err != nil {
		t.Fatal(err)
	}
	w.is(w.update("m1", "v1.36.4"), false, "was created in its cluster")
	if us := w.updates(); len(us) != 1 || us[0].Name == first || us[0].Spec.Bundle == digestA {
		t.Errorf("%+v", us)
	}
}
