package controller_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// updateOfConfigs makes an update without a bundle.
func (s *site) updateOfConfigs(name string, start v1alpha1.StartMode) {
	s.update(name, "", func(u *v1alpha1.ClusterUpdateSpec) { u.Start = start })
}

// has is the digest of a file as a node's agent sees it.
func (s *site) has(node, path string) string {
	s.t.Helper()
	var nu v1alpha1.NodeUpdate
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, &nu); err != nil {
		s.t.Fatal(err)
	}
	digest, _, _ := strings.Cut(nu.Status.Observed.Fields[model.FieldFile+path], " ")
	return digest
}

// An edited NodeConfig reaches the nodes through a ClusterUpdate without a bundle: it is
// planned, approved by its plan digest and run node by node. An update created right after
// the edit is never Done only because the controller has not observed the edit yet.
func TestANodeConfigAloneMakesAnUpdate(t *testing.T) {
	s := newSite(t, from)
	edit := func(text string) {
		t.Helper()
		s.wait("the edit is taken", func() string {
			var c v1alpha1.NodeConfig
			if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "motd"}, &c); err != nil {
				return err.Error()
			}
			c.Spec.Files[0].Contents.Inline = &text
			if err := s.admin.Update(context.Background(), &c); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "motd"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{inline("/etc/motd", "one")}}})
	s.updateOfConfigs("first", v1alpha1.StartManual)
	u := s.waitUpdate("first", "the update is planned and waits for its start", phase(v1alpha1.PhaseReady))
	if u.Status.NodesTotal != 3 || u.Status.Version != "their configuration" {
		t.Errorf("%d nodes to %q", u.Status.NodesTotal, u.Status.Version)
	}
	for _, a := range s.agents {
		if a.runs != 0 {
			t.Errorf("node %s was moved by a plan", a.node)
		}
	}
	s.change("first", func(spec *v1alpha1.ClusterUpdateSpec) {
		spec.Start, spec.PlanDigest = v1alpha1.StartImmediate, u.Status.PlanDigest
	})
	if u = s.waitUpdate("first", "every node is as wanted", phase(v1alpha1.PhaseDone)); u.Status.NodesDone != 3 {
		t.Errorf("%d nodes done", u.Status.NodesDone)
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if s.has(n, "/etc/motd") != model.DigestOf([]byte("one")) {
			t.Errorf("node %s has %s", n, s.has(n, "/etc/motd"))
		}
	}
	// Now there is nothing to do, and it says so.
	s.updateOfConfigs("second", v1alpha1.StartManual)
	if u = s.waitUpdate("second", "an update without changes is done", phase(v1alpha1.PhaseDone)); u.Status.NodesTotal != 0 || u.Status.StartedAt != nil {
		t.Errorf("%+v", u.Status)
	}
	// At once after the edit, several times: the plan waits until the edit is known.
	for _, text := range []string{"two", "three", "four"} {
		edit(text)
		s.updateOfConfigs("to-"+text, v1alpha1.StartImmediate)
		if u = s.waitUpdate("to-"+text, "the update is done", phase(v1alpha1.PhaseDone)); u.Status.NodesDone != 3 || s.has("n3", "/etc/motd") != model.DigestOf([]byte(text)) {
			t.Errorf("%s: %d nodes done, n3 has %s", text, u.Status.NodesDone, s.has("n3", "/etc/motd"))
		}
	}
	// What a NodeConfig wants and may not have holds the update, with the reason.
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "clash"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{inline("/etc/motd", "mine")}}})
	s.updateOfConfigs("refused", v1alpha1.StartImmediate)
	s.waitUpdate("refused", "the update reports the conflict", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseBlocked && blocked(v1alpha1.ReasonConfigConflict)(u)
	})
}
