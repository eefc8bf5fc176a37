package controller_test

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// resourceBundle returns the header of a bundle with manifests and without Kubernetes.
func resourceBundle(t *testing.T, version, manifests string) []byte {
	t.Helper()
	return payloadBundle(t, version, bundle.PayloadResources, manifests)
}

// payloadBundle returns the header of a bundle with one payload.
func payloadBundle(t *testing.T, version, payload, manifests string) []byte {
	t.Helper()
	d := bundle.DigestOf([]byte(manifests))
	sum := sha256.Sum256([]byte(manifests))
	raw, err := bundle.Marshal(&bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: "0.0.1", Name: "shop", Version: version, Platforms: []string{"linux/amd64"},
		ChunkSize: bundle.DefaultChunkSize, Images: []bundle.Image{}, Blobs: []bundle.Blob{{Digest: d, Size: int64(len(manifests))}},
		Payloads: []bundle.Payload{{Name: payload, Digest: d, Size: int64(len(manifests)), Mode: 0o644}}}, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// An update with manifests and without node changes is not a no-op: it waits for its start,
// and applies nothing before. Manifests marked before-nodes block the update until they are
// applied.
func TestABundleOfResourcesIsStartedByAPerson(t *testing.T) {
	const manifests = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: early, namespace: default, annotations: {refit.dev/apply: before-nodes}}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: late, namespace: default}\n"
	s := newSite(t, from)
	named := metav1.ObjectMeta{Namespace: "default", Name: "refit-resources"}
	s.create(&rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch", "delete"}}}})
	s.create(&rbacv1.RoleBinding{ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}})
	raw := resourceBundle(t, "1.0.0", manifests)
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.chunks = map[string][]byte{digest(t, raw): []byte(manifests)} })
	}
	s.plugIn("n2", raw)
	s.approve("shop", digest(t, raw))
	s.update("u", digest(t, raw), func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartManual })
	u := s.waitUpdate("u", "the update waits for its start", phase(v1alpha1.PhaseReady))
	if r := u.Status.Resources; r == nil || r.Create != 2 || r.Before != 1 || u.Status.NodesTotal != 0 {
		t.Fatalf("resources %+v, %d nodes", u.Status.Resources, u.Status.NodesTotal)
	}
	if s.hasConfigMap("early") || s.hasConfigMap("late") {
		t.Fatal("something was applied before the update was started")
	}
	s.change("u", func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartImmediate })
	s.waitUpdate("u", "the resources are applied", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseDone && u.Status.Resources != nil && u.Status.Resources.State == v1alpha1.ResourcesApplied
	})
	if !s.hasConfigMap("early") || !s.hasConfigMap("late") {
		t.Fatal("the status reports it as applied, but it is missing")
	}
	// The same bundle once more changes nothing, so there is nothing to start.
	s.update("again", digest(t, raw), func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartManual })
	s.waitUpdate("again", "there is nothing to do", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseDone && strings.Contains(u.Status.Conditions[0].Message+u.Status.Conditions[2].Message, "none has to change")
	})
}

// What must come before the nodes and cannot be applied keeps every node from
// moving, and says why.
func TestNoNodeMovesBeforeWhatComesFirst(t *testing.T) {
	const manifests = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: early, namespace: default, annotations: {refit.dev/apply: before-nodes}}\n"
	s := newSite(t, from)
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{inline("/etc/motd", "hello")}}})
	raw := resourceBundle(t, "1.0.0", manifests)
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.chunks = map[string][]byte{digest(t, raw): []byte(manifests)} })
	}
	s.plugIn("n2", raw)
	s.approve("shop", digest(t, raw))
	s.update("u", digest(t, raw), nil)
	s.waitUpdate("u", "the blocker names the missing RBAC rule and its subject", func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.StartedAt != nil && blocked(v1alpha1.ReasonResourcesPending)(u) && strings.Contains(u.Status.WaitingFor, "refit-system/refit-controller")
	})
	for _, n := range []string{"n1", "n2", "n3"} {
		if s.node(n).Annotations[v1alpha1.AnnotationUpdating] != "" || s.agents[n].runs != 0 {
			t.Errorf("node %s was touched", n)
		}
	}
	named := metav1.ObjectMeta{Namespace: "default", Name: "refit-resources"}
	s.create(&rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch", "delete"}}}})
	s.create(&rbacv1.RoleBinding{ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}})
	u := s.waitUpdate("u", "the update resumes by itself", phase(v1alpha1.PhaseDone))
	if u.Status.NodesDone != 3 || !s.hasConfigMap("early") {
		t.Errorf("%d nodes done, early there: %t", u.Status.NodesDone, s.hasConfigMap("early"))
	}
}

func (s *site) hasConfigMap(name string) bool {
	s.t.Helper()
	err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err == nil
}

// The stream of boot images that a bundle brings is read from a node, and kept.
func TestABundleBringsTheStreamOfBootImages(t *testing.T) {
	const data = `{"apiVersion":"refit.dev/boot-images/v1","images":[{"architecture":"amd64","platform":"vsphere","version":"9.6.20251023-0","attributes":{"sha256":"aa"}}]}`
	s := newSite(t, from)
	raw := payloadBundle(t, "1.0.0", bundle.PayloadBootImages, data)
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.chunks = map[string][]byte{digest(t, raw): []byte(data)} })
	}
	s.create(&v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: v1alpha1.BootImageStreamSpec{Bundle: &v1alpha1.StreamBundle{Digest: digest(t, raw)}}})
	state := func() (st v1alpha1.BootImageStreamStatus, said string) {
		var o v1alpha1.BootImageStream
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "site"}, &o); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			said = c.Reason + " " + c.Message
		}
		return o.Status, said
	}
	s.wait("the bundle is not approved, so no node has it", func() string {
		if _, said := state(); !strings.Contains(said, "it must be approved") {
			return said
		}
		return ""
	})
	s.plugIn("n2", raw)
	s.approve("shop", digest(t, raw))
	s.wait("the stream has the data of the bundle", func() string {
		st, said := state()
		if st.Images != 1 || st.Release != "1.0.0" || st.Content == "" || st.Source != digest(t, raw) || !strings.HasPrefix(said, v1alpha1.ReasonAsExpected) {
			return said
		}
		return ""
	})
}
