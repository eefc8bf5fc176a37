package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

func bundleUse(use v1alpha1.BundleUse) func(*v1alpha1.Bundle) bool {
	return func(b *v1alpha1.Bundle) bool { return b.Status.Retention != nil && b.Status.Retention.Use == use }
}

// Three releases, one after the other. When the third is complete, nodes no longer hold the
// first: its set is gone, and no node's desired state names it. The second stays for a rollback.
// An update to the first one, or spec.keep of its Bundle, brings it back.
func TestOldReleasesAreReleased(t *testing.T) {
	s := newSite(t, from)
	var digests []string
	for _, v := range []string{"1.36.1", "1.36.2", "1.36.3"} {
		raw := release(t, "v"+v)
		digests = append(digests, digest(t, raw))
		s.approve("r-"+v, digest(t, raw))
		s.plugIn("n2", raw)
		s.waitBundle("r-"+v, "all nodes hold it", bundleSays(v1alpha1.ConditionLoaded, v1alpha1.ReasonAsExpected))
		s.update("to-"+v, digest(t, raw), nil)
		s.waitUpdate("to-"+v, "every node is done", phase(v1alpha1.PhaseDone))
	}
	first := digests[0]
	b := s.waitBundle("r-1.36.1", "it is released", bundleUse(v1alpha1.BundleReleased))
	s.waitBundle("r-1.36.2", "it stays for a rollback", bundleUse(v1alpha1.BundleRollback))
	s.waitBundle("r-1.36.3", "it runs", bundleUse(v1alpha1.BundleRuns))
	if r := b.Status.Retention; r.OwnImages != 1 || r.FreesBytes <= 0 || r.ReleasedAt == nil {
		t.Errorf("the status misses what is released: %+v", r)
	}
	s.held("the released bundle is gone from the nodes", first, false)
	s.held("the rollback is still there", digests[1], true)
	b = s.waitBundle("r-1.36.1", "its conditions say so", bundleSays(v1alpha1.ConditionReady, v1alpha1.ReasonReleased))
	for kind, want := range map[string]bool{v1alpha1.ConditionApproved: true, v1alpha1.ConditionReady: true, v1alpha1.ConditionLoaded: false, v1alpha1.ConditionReconciling: false, v1alpha1.ConditionStalled: false} {
		if meta.IsStatusConditionTrue(b.Status.Conditions, kind) != want {
			t.Errorf("condition %s is not %t: %+v", kind, want, b.Status.Conditions)
		}
	}
	s.wait("an event says what was released", func() string {
		var l eventsv1.EventList
		if err := s.admin.List(context.Background(), &l); err != nil {
			return err.Error()
		}
		for _, e := range l.Items {
			if e.Regarding.Kind == "Bundle" && e.Regarding.Name == "r-1.36.1" && e.Action == "Release" && strings.Contains(e.Note, fmt.Sprint(b.Status.Retention.FreesBytes, " bytes")) {
				return ""
			}
		}
		return "no such event"
	})

	// A restart of the controller changes nothing, although no node has its header now.
	s.restartController()
	s.update("back", first, func(u *v1alpha1.ClusterUpdateSpec) { u.Start, u.AllowDowngrade = v1alpha1.StartManual, true })
	s.waitBundle("r-1.36.1", "an update brings it back", bundleUse(v1alpha1.BundleUpdate))
	s.held("nodes hold it for the update", first, true)
	if err := s.admin.Delete(context.Background(), &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "back"}}); err != nil {
		t.Fatal(err)
	}
	s.waitBundle("r-1.36.1", "without the update it is released", bundleUse(v1alpha1.BundleReleased))
	s.held("it is gone from the nodes again", first, false)

	kept := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "r-1.36.1"}}
	s.edit(kept, func() { kept.Spec.Keep = true })
	s.waitBundle("r-1.36.1", "an administrator holds it", bundleUse(v1alpha1.BundleHeld))
	s.held("nodes hold it for the administrator", first, true)
}

// held waits until all nodes, or none, are to hold a bundle.
func (s *site) held(what, digest string, want bool) {
	s.t.Helper()
	s.wait(what, func() string {
		name := "bundle-" + strings.TrimPrefix(digest, "sha256:")[:12]
		err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &v1alpha1.PinnedImageSet{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err.Error()
		}
		if (err == nil) != want {
			return fmt.Sprintf("set %s is there: %t", name, err == nil)
		}
		var l v1alpha1.NodeUpdateList
		if err := s.admin.List(context.Background(), &l); err != nil {
			return err.Error()
		}
		for _, nu := range l.Items {
			named := false
			for _, b := range nu.Spec.Bundles {
				named = named || b.Digest == digest
			}
			var c v1alpha1.Content
			if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: nu.Spec.Pins}, &c); err != nil {
				return err.Error()
			}
			if named != want || strings.Contains(c.Data, digest) != want {
				return fmt.Sprintf("node %s: named %t, pinned %t", nu.Name, named, strings.Contains(c.Data, digest))
			}
		}
		return ""
	})
}
