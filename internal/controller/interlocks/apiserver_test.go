package interlocks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/interlocks"
)

const (
	scaleDown = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	disrupt   = "karpenter.sh/do-not-disrupt"
	skip      = "cluster.x-k8s.io/skip-remediation"
)

var (
	machineGVK  = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"}
	nodePoolGVK = schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"}
)

// kind makes a CRD that preserves unknown fields, as the CRDs of the real projects preserve
// the fields of this test.
func kind(gvk schema.GroupVersionKind, plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	keep := true
	c := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + gvk.Group,
		Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}}}
	c.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: gvk.Group, Scope: scope,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: gvk.Kind, ListKind: gvk.Kind + "List"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: gvk.Version, Served: true, Storage: true,
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}}}}}
	return c
}

type site struct {
	t     *testing.T
	cfg   *rest.Config
	admin client.Client
	ctl   client.WithWatch
	now   time.Time
}

func newClient(t *testing.T, cfg *rest.Config) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reconciler is a new process; it dies at its write number deadAt (from 1; 0 never).
func (s *site) reconciler(deadAt int) *interlocks.Reconciler {
	writes := 0
	c := interceptor.NewClient(s.ctl, interceptor.Funcs{Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if writes++; deadAt > 0 && writes >= deadAt {
			return errDead
		}
		return w.Patch(ctx, o, p, opts...)
	}})
	return &interlocks.Reconciler{Client: c, Live: s.ctl, Now: func() time.Time { return s.now }}
}

var errDead = errors.New("this process is dead")

func (s *site) look(r *interlocks.Reconciler) {
	s.t.Helper()
	if _, err := r.Reconcile(s.t.Context(), ctrl.Request{}); err != nil && !errors.Is(err, errDead) {
		s.t.Fatal(err)
	}
}

func (s *site) get(gvk schema.GroupVersionKind, ns, name string) *unstructured.Unstructured {
	s.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	if err := s.admin.Get(s.t.Context(), client.ObjectKey{Namespace: ns, Name: name}, u); err != nil {
		s.t.Fatal(err)
	}
	return u
}

func (s *site) create(gvk schema.GroupVersionKind, ns, name string, rest map[string]any) {
	s.t.Helper()
	u := &unstructured.Unstructured{Object: rest}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(ns)
	u.SetName(name)
	status := u.DeepCopy()
	if err := s.admin.Create(s.t.Context(), u); err != nil {
		s.t.Fatal(err)
	}
	if status.Object["status"] != nil {
		status.SetResourceVersion(u.GetResourceVersion())
		if err := s.admin.Status().Update(s.t.Context(), status); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) node(name string) *corev1.Node {
	s.t.Helper()
	n := &corev1.Node{}
	if err := s.admin.Get(s.t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *site) annotate(name, key, value string) {
	s.t.Helper()
	n := s.node(name)
	p := client.MergeFrom(n.DeepCopy())
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	if n.Annotations[key] = value; value == "" {
		delete(n.Annotations, key)
	}
	if err := s.admin.Patch(s.t.Context(), n, p); err != nil {
		s.t.Fatal(err)
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	cfg := apitest.Start(t)
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{
		kind(machineGVK, "machines", apiextensionsv1.NamespaceScoped), kind(nodePoolGVK, "nodepools", apiextensionsv1.ClusterScoped)}}); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, cfg: cfg, admin: newClient(t, cfg), ctl: newClient(t, apitest.As(cfg, apitest.ControllerUser)), now: time.Now().Truncate(time.Second)}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("n%d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"karpenter.sh/nodepool": "np"},
			Annotations: map[string]string{"cluster.x-k8s.io/machine": "m-" + name, "cluster.x-k8s.io/cluster-namespace": "default"}}}
		if err := s.admin.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		s.create(machineGVK, "default", "m-"+name, map[string]any{"spec": map[string]any{"clusterName": "c"}, "status": map[string]any{"nodeRef": map[string]any{"name": name}}})
	}
	s.create(nodePoolGVK, "", "np", map[string]any{"spec": map[string]any{"disruption": map[string]any{"budgets": []any{map[string]any{"nodes": "10%", "reasons": []any{"Drifted"}}}}}})
	return s
}

// started makes an update that has started and returns its UID.
func (s *site) started(name string) *v1alpha1.ClusterUpdate {
	s.t.Helper()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, Bundle: "sha256:" + fmt.Sprintf("%064d", 1)}}
	if err := s.admin.Create(s.t.Context(), u); err != nil {
		s.t.Fatal(err)
	}
	s.phase(u, v1alpha1.PhaseUpdating)
	return u
}

func (s *site) phase(u *v1alpha1.ClusterUpdate, phase string) {
	s.t.Helper()
	at := metav1.NewTime(s.now)
	u.Status.Phase, u.Status.StartedAt = phase, &at
	if err := s.ctl.Status().Update(s.t.Context(), u); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) mark(node string, u *v1alpha1.ClusterUpdate) {
	s.annotate(node, v1alpha1.AnnotationUpdating, string(u.UID)+" 1 2026-11-20T12:00:00Z")
}

// picture is what the other controllers see.
func (s *site) picture() map[string]any {
	s.t.Helper()
	out := map[string]any{}
	for i := 1; i <= 3; i++ {
		n := s.node(fmt.Sprintf("n%d", i))
		a := n.Annotations
		out[n.Name] = []string{a[scaleDown], a[disrupt], a[v1alpha1.AnnotationInterlock]}
		m := s.get(machineGVK, "default", "m-"+n.Name)
		_, skipped := m.GetAnnotations()[skip]
		_, labelled := m.GetLabels()[v1alpha1.LabelInterlock]
		out[m.GetName()] = []bool{skipped, labelled, m.GetAnnotations()[v1alpha1.AnnotationInterlockUntil] != "", m.GetAnnotations()[v1alpha1.AnnotationInterlock] != ""}
	}
	np := s.get(nodePoolGVK, "", "np")
	out["np"], _, _ = unstructured.NestedSlice(np.Object, "spec", "disruption", "budgets")
	out["np held"] = []string{np.GetLabels()[v1alpha1.LabelInterlock], np.GetAnnotations()[v1alpha1.AnnotationInterlock]}
	return out
}

// Objects are held with the controller's own rights and restored when an update ends in any
// way, at whichever write the controller died.
func TestInterlocksOnAnAPIServer(t *testing.T) {
	s := newSite(t)
	before := s.picture()
	ends := map[string]func(*v1alpha1.ClusterUpdate){
		"done": func(u *v1alpha1.ClusterUpdate) {
			for _, n := range []string{"n1", "n2"} {
				s.annotate(n, v1alpha1.AnnotationUpdating, "")
			}
			s.phase(u, v1alpha1.PhaseDone)
		},
		"deleted": func(u *v1alpha1.ClusterUpdate) { // the marks are still there
			u.Annotations = map[string]string{v1alpha1.AnnotationAllowDelete: "true"}
			if err := s.admin.Update(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			if err := s.admin.Delete(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		},
	}
	for how, end := range ends {
		for dead := 1; dead <= 6; dead++ { // 2 nodes, 2 Machines, 1 NodePool: 5 writes, and none
			t.Run(fmt.Sprintf("%s, dead at write %d", how, dead), func(t *testing.T) {
				s.t = t
				u := s.started(fmt.Sprintf("u-%s-%d", how, dead))
				s.mark("n1", u)
				s.mark("n2", u)
				s.look(s.reconciler(dead))
				s.look(s.reconciler(0)) // another process
				s.isHeld(u)
				end(u)
				s.look(s.reconciler(dead))
				s.look(s.reconciler(0))
				if diff := cmp.Diff(before, s.picture()); diff != "" {
					t.Errorf("not as it was before (-before +after):\n%s", diff)
				}
				for _, n := range []string{"n1", "n2"} {
					s.annotate(n, v1alpha1.AnnotationUpdating, "")
				}
			})
			s.t = t
		}
	}
	t.Run("dead while it holds, and the update is gone when the next one starts", func(t *testing.T) {
		s.t = t
		for dead := 1; dead <= 6; dead++ {
			u := s.started(fmt.Sprintf("u-gone-%d", dead))
			s.mark("n1", u)
			s.mark("n2", u)
			s.look(s.reconciler(dead))
			ends["deleted"](u)
			s.look(s.reconciler(0))
			if diff := cmp.Diff(before, s.picture()); diff != "" {
				t.Errorf("dead at write %d (-before +after):\n%s", dead, diff)
			}
			for _, n := range []string{"n1", "n2"} {
				s.annotate(n, v1alpha1.AnnotationUpdating, "")
			}
		}
	})
	t.Run("a halted update keeps what it holds, and renews it", func(t *testing.T) { s.t = t; s.halted() })
	t.Run("what a person set stays his", func(t *testing.T) { s.t = t; s.persons(before) })
}

func (s *site) isHeld(u *v1alpha1.ClusterUpdate) {
	s.t.Helper()
	for name, want := range map[string]bool{"n1": true, "n2": true, "n3": false} {
		n := s.node(name)
		if (n.Annotations[scaleDown] == "true") != want || (n.Annotations[disrupt] == "true") != want {
			s.t.Errorf("node %s: %v", name, n.Annotations)
		}
		m := s.get(machineGVK, "default", "m-"+name)
		if _, skipped := m.GetAnnotations()[skip]; skipped != want {
			s.t.Errorf("Machine of %s: %v", name, m.GetAnnotations())
		}
		if want && m.GetAnnotations()[v1alpha1.AnnotationInterlockUntil] != s.now.Add(time.Hour).UTC().Format(time.RFC3339) {
			s.t.Errorf("the mark has an end: %v", m.GetAnnotations())
		}
	}
	budgets, _, _ := unstructured.NestedSlice(s.get(nodePoolGVK, "", "np").Object, "spec", "disruption", "budgets")
	want := []any{map[string]any{"nodes": "10%", "reasons": []any{"Drifted"}}, map[string]any{"nodes": "0"}}
	if diff := cmp.Diff(want, budgets); diff != "" {
		s.t.Errorf("NodePool (-want +got):\n%s", diff)
	}
}

func (s *site) halted() {
	u := s.started("u-halted")
	s.mark("n1", u)
	s.mark("n2", u)
	s.look(s.reconciler(0))
	s.phase(u, v1alpha1.PhaseHalted)
	s.now = s.now.Add(45 * time.Minute) // of an hour less than half is left
	s.look(s.reconciler(0))
	s.isHeld(u)
	s.annotate("n1", v1alpha1.AnnotationUpdating, "") // retried, and done
	s.look(s.reconciler(0))
	if n := s.node("n1"); n.Annotations[scaleDown] != "" || n.Annotations[v1alpha1.AnnotationInterlock] != "" {
		s.t.Errorf("a node that is done is not restored: %v", n.Annotations)
	}
	if len(s.get(nodePoolGVK, "", "np").GetLabels()) == 0 {
		s.t.Error("its NodePool is held until the update ends")
	}
	s.annotate("n2", v1alpha1.AnnotationUpdating, "")
	s.phase(u, v1alpha1.PhaseDone)
	s.look(s.reconciler(0))
}

func (s *site) persons(before map[string]any) {
	t := s.t
	s.annotate("n1", scaleDown, "true")
	m := s.get(machineGVK, "default", "m-n1")
	p := client.MergeFrom(m.DeepCopy())
	m.SetAnnotations(map[string]string{skip: "by-hand"})
	if err := s.admin.Patch(t.Context(), m, p); err != nil {
		t.Fatal(err)
	}
	u := s.started("u-persons")
	s.mark("n1", u)
	s.mark("n2", u)
	s.look(s.reconciler(0))
	// While it is held, a person adds a budget of his own.
	np := s.get(nodePoolGVK, "", "np")
	p = client.MergeFrom(np.DeepCopy())
	budgets, _, _ := unstructured.NestedSlice(np.Object, "spec", "disruption", "budgets")
	if err := unstructured.SetNestedSlice(np.Object, append(budgets, map[string]any{"nodes": "3"}), "spec", "disruption", "budgets"); err != nil {
		t.Fatal(err)
	}
	if err := s.admin.Patch(t.Context(), np, p); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"n1", "n2"} {
		s.annotate(n, v1alpha1.AnnotationUpdating, "")
	}
	s.phase(u, v1alpha1.PhaseDone)
	s.look(s.reconciler(0))
	after := s.picture()
	want := map[string]any{}
	for k, v := range before {
		want[k] = v
	}
	want["n1"] = []string{"true", "", ""}
	want["m-n1"] = []bool{true, false, false, false}
	want["np"] = []any{map[string]any{"nodes": "10%", "reasons": []any{"Drifted"}}, map[string]any{"nodes": "3"}}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("a person's values are left as they are (-want +got):\n%s", diff)
	}
	if got := s.get(machineGVK, "default", "m-n1").GetAnnotations()[skip]; got != "by-hand" {
		t.Errorf("his mark is %q", got)
	}
}
