package nodedistribution

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// releases is a cluster of one node that was updated to a, b and c in turn.
func releases() *fake {
	f := newFake("n1")
	f.nodes[0].Status.NodeInfo.KubeletVersion = "v1.36.3"
	for i, d := range []string{dig("a"), dig("b"), dig("c")} {
		f.bundle(d, "app:"+d[7:8]+"="+dig(d[7:8]+"1"), "pause:3="+dig("9"))
		f.headers[d].Metadata.Version, f.headers[d].Metadata.KubernetesVersion = "1.36."+string(rune('1'+i)), "v1.36."+string(rune('1'+i))
		f.bundles = append(f.bundles, v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: d[7:8], CreationTimestamp: at(0)}, Spec: v1alpha1.BundleSpec{Digest: d}})
		f.set(allOf(d))
		done := at(i + 1)
		f.moves = append(f.moves, v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "to-" + d[7:8]}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: d},
			Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseDone, StartedAt: &done, FinishedAt: &done}})
	}
	return f
}

// decideAll does what apply does before it writes.
func (f *fake) decideAll() (w *fleetSnapshot, approvals map[string]approval, order []string) {
	w = f.see()
	approvals = map[string]approval{}
	for d := range w.digests(nil) {
		approvals[d] = w.approvalOf(d, w.peopleApproved(), model.Trust{}, nil)
	}
	w.retained = w.retain(approvals)
	return w, approvals, w.order(approvals)
}

func keep(n int32) v1alpha1.UpdatePool {
	return v1alpha1.UpdatePool{Spec: v1alpha1.UpdatePoolSpec{KeepReleases: &n}}
}

// What each bundle is held for, after each change to a cluster with three releases.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*fake)
		want   string
	}{
		"one older release by default": {func(*fake) {}, "Released Rollback Runs"},
		"no pool sets it":              {func(f *fake) { f.pools = []v1alpha1.UpdatePool{{}} }, "Released Rollback Runs"},
		"the largest number of pools":  {func(f *fake) { f.pools = []v1alpha1.UpdatePool{keep(0), keep(2)} }, "Rollback Rollback Runs"},
		"none":                         {func(f *fake) { f.pools = []v1alpha1.UpdatePool{keep(0)} }, "Released Released Runs"},
		"an update names it":           {func(f *fake) { f.moves[0].Status.Phase = v1alpha1.PhaseHalted }, "Update Rollback Runs"},
		"an update of some nodes": {func(f *fake) {
			f.moves[0].Spec.Nodes = []string{"n1"}
			end := at(9)
			f.moves[0].Status.FinishedAt = &end
		}, "Runs Rollback Runs"},
		"a kubelet of the old version": {func(f *fake) { f.nodes[0].Status.NodeInfo.KubeletVersion = "v1.36.1" }, "Runs Rollback Runs"},
		"spec.keep":                    {func(f *fake) { f.bundles[0].Spec.Keep = true }, "Held Rollback Runs"},
		"a boot image stream of it": {func(f *fake) {
			f.streams = []v1alpha1.BootImageStream{{Spec: v1alpha1.BootImageStreamSpec{Bundle: &v1alpha1.StreamBundle{Digest: dig("a")}}}}
		}, "Held Rollback Runs"},
		"a set of a user": {func(f *fake) {
			f.set(v1alpha1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.PinnedImageSetSpec{Bundle: dig("a")}})
		}, "Held Rollback Runs"},
		"a node changes to it": {func(f *fake) { f.updates["n1"].Spec.Run = &v1alpha1.NodeRun{UID: "u", Bundle: dig("a")} }, "Runs Rollback Runs"},
		"a node has changed to it before": {func(f *fake) {
			f.updates["n1"].Spec.Run = &v1alpha1.NodeRun{UID: "u", Bundle: dig("a")}
			f.updates["n1"].Status.Run = &v1alpha1.NodeRunStatus{UID: "u", State: v1alpha1.RunSucceeded}
		}, "Released Rollback Runs"},
		"headers that are not here, and a status": {func(f *fake) {
			f.bundles[0].Status = v1alpha1.BundleStatus{Digest: dig("a"), Name: "b", Version: "1.36.1", KubernetesVersion: "v1.36.1"}
			delete(f.headers, dig("a"))
		}, "Released Rollback Runs"},
		"nothing known of it": {func(f *fake) { delete(f.headers, dig("a")) }, "Waits Rollback Runs"},
		"history without it":  {func(f *fake) { f.moves = f.moves[1:] }, "Released Rollback Runs"},
		"history without all": {func(f *fake) { f.moves = nil }, "Waits Waits Waits"},
		"approved after all":  {func(f *fake) { f.bundles[0].CreationTimestamp = at(9) }, "Waits Rollback Runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := releases()
			c.change(f)
			w, _, _ := f.decideAll()
			var got []string
			for _, d := range []string{dig("a"), dig("b"), dig("c")} {
				got = append(got, string(w.retained[d].Use))
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %s, want %s: %+v", s, c.want, w.retained)
			}
		})
	}
}

// The set of a released bundle goes, then nodes are no longer to read the bundle, and the set
// does not come back. A pod that runs its image keeps it.
func TestReleasedSetsGo(t *testing.T) {
	t.Parallel()
	f := releases()
	w, _, order := f.decideAll()
	if len(order) != 3 || len(w.missingSets(order)) != 0 {
		t.Errorf("as long as the set is there nodes read the bundle: %v", order)
	}
	gone := w.removableSets(order)
	if len(gone) != 1 || gone[0].Spec.Bundle != dig("a") {
		t.Fatalf("sets that go: %+v", gone)
	}
	if kept := w.setsWithoutPods(gone, map[string]string{"app:a": "default/old"}); len(kept) != 0 || !strings.Contains(w.releasedMessage(dig("a")), "nodes still hold it: pod default/old runs app:a") {
		t.Errorf("%v: %s", kept, w.releasedMessage(dig("a")))
	}
	f.sets = f.sets[1:]
	w, _, order = f.decideAll()
	if len(order) != 2 || len(w.missingSets(order)) != 0 {
		t.Errorf("it is asked for again: %v", order)
	}
	f.moves = append(f.moves, v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "back"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: dig("a")}})
	w, _, order = f.decideAll()
	if len(order) != 3 || len(w.missingSets(order)) != 1 {
		t.Errorf("an update does not bring it back: %v", order)
	}
}

// A bundle that never ran goes when its approval is withdrawn, once the cluster was updated to
// another one.
func TestWithdrawnBundlesGo(t *testing.T) {
	t.Parallel()
	f := releases()
	f.bundle(dig("d"), "app:d=1")
	s := allOf(dig("d"))
	s.CreationTimestamp = at(20)
	f.set(s)
	w, _, order := f.decideAll()
	if gone := w.removableSets(order); len(gone) != 2 || gone[1].Spec.Bundle != dig("d") {
		t.Errorf("sets that go: %+v", gone)
	}
	f.moves = nil
	w, _, order = f.decideAll()
	if gone := w.removableSets(order); len(gone) != 0 {
		t.Errorf("before the first update: %+v", gone)
	}
}

// The status says what is released and what it frees, also when no node has the header any
// more. One event reports the release, one that it is held again.
func TestReleaseIsReported(t *testing.T) {
	t.Parallel()
	f := releases()
	w, approvals, _ := f.decideAll()
	b := &w.bundles[0]
	st := w.bundleStatus(b, approvals, nil)
	r := st.Retention
	if r == nil || r.Use != v1alpha1.BundleReleased || r.OwnImages != 1 || !r.ReleasedAt.Time.Equal(start) || !strings.Contains(r.Message, "nodes keep 1 older") {
		t.Fatalf("%+v", r)
	}
	rec := events.NewFakeRecorder(4)
	reconciler := &Reconciler{Events: rec}
	reconciler.emitRetention(b, &st)
	if e := <-rec.Events; !strings.Contains(e, "Released") || !strings.Contains(e, "1 image") {
		t.Error(e)
	}
	b.Status = st
	b.Status.Retention.FreesBytes = 77
	f.sets = f.sets[1:]
	delete(f.headers, dig("a"))
	f.now = start.Add(1e9)
	w, approvals, _ = f.decideAll()
	again := w.bundleStatus(&w.bundles[0], approvals, nil)
	if again.Retention.FreesBytes != 77 || !again.Retention.ReleasedAt.Time.Equal(start) || again.Loaded != "" {
		t.Errorf("%+v", again)
	}
	reconciler.emitRetention(&w.bundles[0], &again)
	f.bundles[0].Spec.Keep = true
	w, approvals, _ = f.decideAll()
	held := w.bundleStatus(&w.bundles[0], approvals, nil)
	if held.Retention.Use != v1alpha1.BundleUse(pin.UseHeld) || held.Retention.ReleasedAt != nil {
		t.Errorf("%+v", held.Retention)
	}
	reconciler.emitRetention(&w.bundles[0], &held)
	if len(rec.Events) != 1 {
		t.Fatalf("%d events", len(rec.Events))
	}
	if e := <-rec.Events; !strings.Contains(e, "again") {
		t.Error(e)
	}
}
