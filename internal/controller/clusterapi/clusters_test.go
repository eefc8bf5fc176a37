package clusterapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

const (
	oldVersion = "v1.35.4"
	newVersion = "v1.36.3"
	apiVersion = `"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1"`
)

var digestA = "sha256:" + strings.Repeat("a", 64)

// testClusters is a management cluster and one workload cluster, in memory.
type testClusters struct {
	t    testing.TB
	now  time.Time
	mgmt client.WithWatch
	site client.WithWatch
	s    *Server
	// fail makes writes and reads of the management cluster fail; by verb and kind.
	fail map[string]error
	// failSite does so for every call to the workload cluster.
	failSite error
	recorder *events.FakeRecorder
}

// testScheme is made once: it is only read.
var testScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	for _, kind := range []string{kindMachine, kindSet, kindDeployment, kindControlPlane, kindCluster} {
		s.AddKnownTypeWithName(gvk(kind), &unstructured.Unstructured{})
		g := gvk(kind)
		g.Kind += "List"
		s.AddKnownTypeWithName(g, &unstructured.UnstructuredList{})
	}
	for _, g := range providerKinds {
		s.AddKnownTypeWithName(g, &unstructured.Unstructured{})
		g.Kind += "List"
		s.AddKnownTypeWithName(g, &unstructured.UnstructuredList{})
	}
	return s
})

// providerKinds are those of an infrastructure provider and of the kubeadm one.
var providerKinds = []schema.GroupVersionKind{
	{Group: infraGroup, Version: "v1", Kind: "VM"}, {Group: infraGroup, Version: "v1", Kind: "VMTemplate"},
	{Group: bootstrapGroup, Version: "v1", Kind: "KubeadmConfig"}, {Group: bootstrapGroup, Version: "v1", Kind: "KubeadmConfigTemplate"},
}

const (
	infraGroup     = "infrastructure.cluster.x-k8s.io"
	bootstrapGroup = "bootstrap.cluster.x-k8s.io"
)

func newTestClusters(t testing.TB) *testClusters {
	t.Helper()
	w := &testClusters{t: t, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), fail: map[string]error{}, recorder: events.NewFakeRecorder(100)}
	scheme := testScheme()
	check := func(verb string, o runtime.Object) error {
		for key, err := range w.fail {
			v, kind, _ := strings.Cut(key, " ")
			if err != nil && v == verb && strings.Contains(typeName(o), kind) {
				return err
			}
		}
		return nil
	}
	w.mgmt = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.InPlacePlan{}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := check("get", o); err != nil {
				return err
			}
			return c.Get(ctx, k, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := check("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := check("status", o); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}).Build()
	w.site = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ClusterUpdate{}, &v1alpha1.NodeUpdate{}, &v1alpha1.Bundle{}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if w.failSite != nil {
				return w.failSite
			}
			return c.Get(ctx, k, o, opts...)
		},
	}).Build()
	w.s = w.server()
	w.create(w.mgmt, object(kindCluster, "c1", nil, nil))
	w.create(w.mgmt, object(kindDeployment, "pool", nil, nil))
	w.create(w.mgmt, object(kindControlPlane, "cp", nil, nil))
	w.create(w.mgmt, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1-kubeconfig"}})
	return w
}

// server is another replica: it remembers nothing.
func (w *testClusters) server() *Server {
	s := New(w.mgmt, w.mgmt.Scheme(), w.recorder, logr.Discard(), Options{Names: []string{"x"}, Servers: outbound.New(outbound.ServerFlag, "127.0.0.1"), Now: func() time.Time { return w.now }})
	s.workloadClient = func(*corev1.Secret) (client.Client, error) { return w.site, nil }
	return s
}

func typeName(o runtime.Object) string {
	if k := o.GetObjectKind().GroupVersionKind().Kind; k != "" {
		return k
	}
	switch o.(type) {
	case *v1alpha1.InPlacePlan:
		return "InPlacePlan"
	case *corev1.Secret:
		return "Secret"
	}
	return ""
}

func object(kind, name string, labels map[string]string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(gvk(kind))
	o.SetNamespace("default")
	o.SetName(name)
	o.SetLabels(labels)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

func (w *testClusters) create(c client.Client, o client.Object) {
	w.t.Helper()
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + o.GetName()))
	}
	if err := c.Create(w.t.Context(), o); err != nil {
		w.t.Fatalf("create %s: %v", o.GetName(), err)
	}
}

// machine makes a Machine of the worker pool that is in an update to a version.
func (w *testClusters) machine(name, version string, inUpdate bool) *unstructured.Unstructured {
	w.t.Helper()
	o := object(kindMachine, name, map[string]string{labelCluster: "c1", labelDeployment: "pool", labelSet: "pool-abc"}, map[string]any{"version": version, "clusterName": "c1"})
	if inUpdate {
		o.SetAnnotations(map[string]string{annotationInProgress: "", annotationPendingHooks: "Other," + hookUpdateMachine})
	}
	o.Object["status"] = map[string]any{"nodeRef": map[string]any{"name": "node-" + name}}
	w.create(w.mgmt, o)
	return o
}

// node of the workload cluster, as the kubelet and the agent say.
func (w *testClusters) node(name, kubelet, agent string) {
	w.t.Helper()
	ctx := w.t.Context()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubelet},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}}
	if agent != "" {
		nu.Status.Observed = &v1alpha1.Observed{KubeletVersion: agent}
	}
	_ = w.site.Delete(ctx, n.DeepCopy())
	_ = w.site.Delete(ctx, nu.DeepCopy())
	w.create(w.site, n)
	w.create(w.site, nu)
}

func (w *testClusters) bundle(name, version, digest string) {
	w.t.Helper()
	w.create(w.site, &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.BundleSpec{Digest: digest}, Status: v1alpha1.BundleStatus{KubernetesVersion: version}})
}

// updates that were asked for in the workload cluster.
func (w *testClusters) updates() []v1alpha1.ClusterUpdate {
	w.t.Helper()
	var l v1alpha1.ClusterUpdateList
	if err := w.site.List(w.t.Context(), &l); err != nil {
		w.t.Fatal(err)
	}
	return l.Items
}

func (w *testClusters) phase(phase string, blockers ...v1alpha1.Blocker) {
	w.t.Helper()
	for _, u := range w.updates() {
		u.Status.Phase, u.Status.Blockers = phase, blockers
		if err := w.site.Status().Update(w.t.Context(), &u); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *testClusters) plan(name string) *v1alpha1.InPlacePlan {
	w.t.Helper()
	p := &v1alpha1.InPlacePlan{}
	if err := w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, p); err != nil {
		w.t.Fatalf("plan %s: %v", name, err)
	}
	return p
}

func (w *testClusters) annotations(name string) map[string]string {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk(kindMachine))
	if err := w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
	return o.GetAnnotations()
}

func (w *testClusters) annotate(o *unstructured.Unstructured, key, value string) {
	w.t.Helper()
	a := o.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a[key] = value
	o.SetAnnotations(a)
	if err := w.mgmt.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// post sends a body as Cluster API does, without a Content-Type.
func (w *testClusters) post(s *Server, h hooks.Hook, body string) (int, string) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodPost, h.Path()+"?timeout=10s", strings.NewReader(body)))
	return rec.Code, rec.Body.String()
}

// ask posts a question as Cluster API does: about objects that the API server holds.
func (w *testClusters) ask(h hooks.Hook, body string) hooks.Answer {
	w.t.Helper()
	if h.Claims {
		w.store(h, body)
	}
	return w.askAsIs(h, body)
}

// askAsIs posts a request without storing its objects first.
func (w *testClusters) askAsIs(h hooks.Hook, body string) hooks.Answer {
	w.t.Helper()
	code, text := w.post(w.s, h, body)
	if code != 200 {
		w.t.Fatalf("%d %s", code, text)
	}
	a, err := h.DecodeAnswer([]byte(text))
	if err != nil {
		w.t.Fatalf("%v: %s", err, text)
	}
	return a
}

// store makes the API server hold what a question is about: the current objects,
// and a pool that asks for the desired ones.
func (w *testClusters) store(h hooks.Hook, body string) {
	w.t.Helper()
	r, err := h.Decode(strings.NewReader(body))
	if err != nil {
		return
	}
	var current, desired *unstructured.Unstructured
	for side, objects := range map[string]hooks.Objects{"current": r.Current, "desired": r.Desired} {
		m := plain(w.t, objects[capidiff.Machine])
		for role, at := range map[string][]string{capidiff.Infrastructure: {"infrastructureRef"}, capidiff.Bootstrap: {"bootstrap", "configRef"}} {
			if objects[role] == nil {
				continue
			}
			o := plain(w.t, objects[role])
			if ref, ok, _ := unstructured.NestedStringMap(m.Object, append(slices.Clone(h.Spec), at...)...); ok {
				g := schema.FromAPIVersionAndKind(o.GetAPIVersion(), o.GetKind())
				if ref["name"] != o.GetName() || ref["kind"] != g.Kind || ref["apiGroup"] != g.Group {
					w.t.Fatalf("%s %s: the reference %v is not to %s %s", side, role, ref, g, o.GetName())
				}
				w.put(o)
			}
		}
		if side == "current" {
			current = m
		} else {
			desired = m
		}
	}
	if h.Keys[capidiff.Machine] == "machineSet" {
		current.SetGroupVersionKind(gvk(kindSet))
		w.put(current)
		template, _, _ := unstructured.NestedMap(desired.Object, "spec", "template", "spec")
		w.ofPool(kindDeployment, "pool", func(o map[string]any) error {
			return unstructured.SetNestedMap(o, template, "spec", "template", "spec")
		})
		return
	}
	current.SetGroupVersionKind(gvk(kindMachine))
	w.put(current)
	version, _, _ := unstructured.NestedString(desired.Object, "spec", "version")
	w.ofPool(kindControlPlane, "cp", func(o map[string]any) error {
		config, _, _ := unstructured.NestedMap(plain(w.t, r.Desired[capidiff.Bootstrap]).Object, "spec")
		if config != nil {
			if err := unstructured.SetNestedMap(o, config, "spec", "kubeadmConfigSpec"); err != nil {
				return err
			}
		}
		return unstructured.SetNestedField(o, version, "spec", "version")
	})
}

// plain is an object with numbers as the API server's client has them.
func plain(t testing.TB, o map[string]any) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if o == nil {
		return u
	}
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := utiljson.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// put creates or replaces an object.
func (w *testClusters) put(o *unstructured.Unstructured) {
	w.t.Helper()
	_ = w.mgmt.Delete(w.t.Context(), o.DeepCopy())
	o = o.DeepCopy()
	o.SetResourceVersion("")
	w.create(w.mgmt, o)
}

// ofPool changes what a pool asks for, if there is one.
func (w *testClusters) ofPool(kind, name string, change func(map[string]any) error) {
	w.t.Helper()
	o := object(kind, name, nil, nil)
	if err := w.mgmt.Get(w.t.Context(), keyOf(o), o); err != nil {
		return
	}
	if err := change(o.Object); err != nil {
		w.t.Fatal(err)
	}
	if err := w.mgmt.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// update asks about a machine, as Cluster API does, with what it wants.
func (w *testClusters) update(name, version string) hooks.Answer {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"apiVersion": hooks.APIVersion, "kind": "UpdateMachineRequest", "desired": map[string]any{
		"machine": map[string]any{"kind": "Machine", "metadata": map[string]any{"namespace": "default", "name": name}, "spec": map[string]any{"version": version}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.ask(hooks.UpdateMachine, string(body))
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

func metaOf(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// provider is an object of the infrastructure or bootstrap provider.
func provider(kind, name, spec string) *unstructured.Unstructured {
	version := infraGroup + "/v1"
	if strings.HasPrefix(kind, "Kubeadm") {
		version = bootstrapGroup + "/v1"
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	text := `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"namespace":"default","name":"` + name + `"},"spec":` + spec + `}`
	if err := utiljson.Unmarshal([]byte(text), &o.Object); err != nil {
		panic(err)
	}
	return o
}

func putIn(o map[string]any, v any, fields ...string) {
	if err := unstructured.SetNestedField(o, v, fields...); err != nil {
		panic(err)
	}
}
