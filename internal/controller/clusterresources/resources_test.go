package clusterresources

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
)

const release1 = `
apiVersion: example.test/v1
kind: Widget
metadata: {name: w, namespace: shop}
spec: {size: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {a: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: shop}
data: {a: "1"}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.test}
spec:
  group: example.test
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const release2 = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {a: "2"}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
`

// site is a real API server with a reconciler that acts with some user's rights.
type site struct {
	t       *testing.T
	admin   client.Client
	own     client.Client // with the rights of the installed controller
	r       *Reconciler
	payload string
}

func newSite(t *testing.T) *site {
	t.Helper()
	cfg := apitest.Start(t)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	own, err := client.New(apitest.As(cfg, apitest.ControllerUser), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, admin: admin, own: own}
	s.r = &Reconciler{Client: own, Objects: admin, Payload: func(context.Context, string) (*Payload, error) {
		if s.payload == "" {
			return nil, nil
		}
		return &Payload{Bundle: "shop", Data: []byte(s.payload)}, nil
	}}
	return s
}

func (s *site) update(name, phase string, finished time.Time) {
	s.t.Helper()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, Bundle: "sha256:" + strings.Repeat("a", 64)}}
	if err := s.admin.Create(context.Background(), u); err != nil {
		s.t.Fatal(err)
	}
	u.Status.Phase, u.Status.PlanDigest = phase, "sha256:p"
	if phase == v1alpha1.PhaseDone {
		at := metav1.NewTime(finished)
		u.Status.StartedAt, u.Status.FinishedAt = &at, &at
	}
	if err := s.own.Status().Update(context.Background(), u); err != nil {
		s.t.Fatal(err)
	}
}

// look reconciles until the status has a state.
func (s *site) look(name, state string) *v1alpha1.ResourcesStatus {
	s.t.Helper()
	var u v1alpha1.ClusterUpdate
	for range 100 {
		if _, err := s.r.Reconcile(context.Background(), ctrl.Request{}); err != nil {
			s.t.Fatal(err)
		}
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &u); err != nil {
			s.t.Fatal(err)
		}
		if u.Status.Resources != nil && u.Status.Resources.State == state {
			return u.Status.Resources
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatalf("%s never says %s: %+v", name, state, u.Status.Resources)
	return nil
}

func (s *site) configMap(name string) *corev1.ConfigMap {
	s.t.Helper()
	var cm corev1.ConfigMap
	err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: name}, &cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return &cm
}

func counts(st *v1alpha1.ResourcesStatus) string {
	return fmt.Sprint(st.Create, " ", st.Change, " ", st.Remove, " ", st.Unchanged)
}

// One API server for all: they are not cheap.
func TestWithARealAPIServer(t *testing.T) {
	s := newSite(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *site)
	}{
		{"compared, applied, pruned, and never forced", aBundlesResources},
		{"before the nodes", beforeTheNodes},
		{"waits and refusals", waitsAndRefusals},
		{"without rights", withoutRights},
	} {
		t.Run(part.name, func(t *testing.T) {
			s.t = t
			if err := s.admin.DeleteAllOf(context.Background(), &v1alpha1.ClusterUpdate{}); err != nil {
				t.Fatal(err)
			}
			part.run(t, s)
		})
	}
}

// What a bundle brings is compared before the nodes move and changes nothing; it is
// applied afterwards, kinds first; what the next release does not bring is removed,
// and only that.
func aBundlesResources(t *testing.T, s *site) {
	s.payload = release1
	s.update("one", v1alpha1.PhaseReady, time.Time{})
	if st := s.look("one", v1alpha1.ResourcesCompared); counts(st) != "5 0 0 0" {
		t.Fatalf("%+v", st)
	}
	if s.configMap("settings") != nil {
		t.Fatal("a comparison has made something")
	}
	s.update("first", v1alpha1.PhaseDone, time.Now().Add(-time.Hour))
	s.look("first", v1alpha1.ResourcesApplied)
	if cm := s.configMap("settings"); cm == nil || cm.Data["a"] != "1" {
		t.Fatal(cm)
	}
	var w unstructured.Unstructured
	w.SetAPIVersion("example.test/v1")
	w.SetKind("Widget")
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "w"}, &w); err != nil {
		t.Fatal(err)
	}

	// Foreign objects next to ours, and one of ours that a user recreated.
	for _, name := range []string{"theirs"} {
		if err := s.admin.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.admin.Delete(context.Background(), &w); err != nil {
		t.Fatal(err)
	}
	w.SetResourceVersion("")
	w.SetUID("")
	w.SetManagedFields(nil)
	if err := s.admin.Create(context.Background(), &w); err != nil {
		t.Fatal(err)
	}
	s.payload = release2
	s.update("second", v1alpha1.PhaseDone, time.Now())
	if st := s.look("second", v1alpha1.ResourcesApplied); counts(st) != "0 1 1 1" {
		t.Fatalf("%+v", st)
	}
	if s.configMap("settings").Data["a"] != "2" || s.configMap("old") != nil || s.configMap("theirs") == nil {
		t.Fatal("settings, old or theirs is not as it should be")
	}
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "w"}, &w); err != nil {
		t.Fatal("a recreated object was removed:", err)
	}

	// Once is enough: what people change afterwards is theirs.
	cm := s.configMap("settings")
	cm.Data["a"] = "by hand"
	if err := s.admin.Update(context.Background(), cm, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.r.Reconcile(context.Background(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	if s.configMap("settings").Data["a"] != "by hand" {
		t.Fatal("a person's change was undone")
	}

	// The next release wants that field: a conflict that names the owner, and nothing is forced.
	s.payload = strings.ReplaceAll(release2, `"2"`, `"3"`)
	s.update("third", v1alpha1.PhaseDone, time.Now().Add(time.Hour))
	st := s.look("third", v1alpha1.ResourcesConflict)
	if len(st.Conflicts) != 1 || !strings.Contains(st.Conflicts[0], "kubectl-edit") || !strings.Contains(st.Conflicts[0], "ConfigMap/shop/settings") || s.configMap("settings").Data["a"] != "by hand" {
		t.Fatalf("%+v %v", st, s.configMap("settings").Data)
	}
}

// What is marked comes when the update has started and before its nodes move, and
// no node may move before it works; the rest, and pruning, come at the end.
func beforeTheNodes(t *testing.T, s *site) {
	s.payload = `
apiVersion: v1
kind: ConfigMap
metadata: {name: early, namespace: default, annotations: {refit.dev/apply: before-nodes}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: late, namespace: default}
---
apiVersion: batch/v1
kind: Job
metadata: {name: first, namespace: default, annotations: {refit.dev/apply: before-nodes}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "c:1"}]}}}
`
	find := func(name string) bool {
		err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &corev1.ConfigMap{})
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil
	}
	s.update("w", v1alpha1.PhaseReady, time.Time{})
	st := s.look("w", v1alpha1.ResourcesCompared)
	if st.Before != 2 || st.BeforeApplied || find("early") || PendingBeforeNodes(st) == nil {
		t.Fatalf("before the start: %+v", st)
	}
	var u v1alpha1.ClusterUpdate
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "w"}, &u); err != nil {
		t.Fatal(err)
	}
	at := metav1.Now()
	u.Status.StartedAt, u.Status.Phase = &at, v1alpha1.PhaseUpdating
	if err := s.own.Status().Update(context.Background(), &u); err != nil {
		t.Fatal(err)
	}
	st = s.look("w", v1alpha1.ResourcesWaiting)
	if v := PendingBeforeNodes(st); v == nil || !v.Waiting || !strings.Contains(v.Message, "Job/default/first: it is not complete") || !find("early") || find("late") {
		t.Fatalf("the Job has not run: %+v", st)
	}
	var j batchv1.Job
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "first"}, &j); err != nil {
		t.Fatal(err)
	}
	j.Status.StartTime, j.Status.CompletionTime, j.Status.Succeeded = &at, &at, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	if err := s.admin.Status().Update(context.Background(), &j); err != nil {
		t.Fatal(err)
	}
	if st = s.look("w", v1alpha1.ResourcesStarted); !st.BeforeApplied || PendingBeforeNodes(st) != nil || find("late") {
		t.Fatalf("before the nodes: %+v", st)
	}
	u.Status.Phase, u.Status.FinishedAt = v1alpha1.PhaseDone, &at
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "w"}, &u); err != nil {
		t.Fatal(err)
	}
	end := metav1.NewTime(time.Now().Add(24 * time.Hour)) // the last of all
	u.Status.Phase, u.Status.FinishedAt = v1alpha1.PhaseDone, &end
	if err := s.own.Status().Update(context.Background(), &u); err != nil {
		t.Fatal(err)
	}
	if st = s.look("w", v1alpha1.ResourcesApplied); !find("late") || !find("early") || st.Remove != 0 {
		t.Fatalf("after the nodes: %+v", st)
	}
}

// What is not known is not taken for nothing: after a restart the header of a
// bundle is asked of the nodes again, and is looked for until it is there.
func TestAHeaderThatIsNotHereIsWaitedFor(t *testing.T) {
	u := &v1alpha1.ClusterUpdate{Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:b"}, Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseDone}}
	r := &Reconciler{Payload: func(context.Context, string) (*Payload, error) {
		return nil, fmt.Errorf("%w: %w", bundlefiles.ErrNotYet, bundlefiles.ErrPending)
	}}
	if later, err := r.reconcileOne(t.Context(), u); !later || err != nil {
		t.Errorf("later %t, %v", later, err)
	}
	r.Payload = func(context.Context, string) (*Payload, error) { return nil, nil }
	if later, err := r.reconcileOne(t.Context(), u); later || err != nil {
		t.Errorf("a bundle without resources: later %t, %v", later, err)
	}
}

// A Deployment is waited for; what is refused says why, and the rest goes on.
func waitsAndRefusals(t *testing.T, s *site) {
	s.payload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: "c:1"}]}
`
	s.update("u", v1alpha1.PhaseDone, time.Now())
	if st := s.look("u", v1alpha1.ResourcesWaiting); !strings.Contains(st.Message, "Deployment/default/d: 0 of 2 pods") {
		t.Fatalf("%+v", st)
	}
	var d appsv1.Deployment
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "d"}, &d); err != nil {
		t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	if err := s.admin.Status().Update(context.Background(), &d); err != nil {
		t.Fatal(err)
	}
	s.look("u", v1alpha1.ResourcesApplied)

	s.payload = "apiVersion: missing.test/v1\nkind: Thing\nmetadata: {name: x}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine, namespace: default}\n"
	s.update("v", v1alpha1.PhaseDone, time.Now().Add(time.Hour))
	if st := s.look("v", v1alpha1.ResourcesFailed); !strings.Contains(st.Message, "no such kind Thing.missing.test") || st.Create != 1 {
		t.Fatalf("%+v", st)
	}
}

// The controller has no right to objects in bundles unless an administrator grants it.
func withoutRights(t *testing.T, s *site) {
	s.r.Objects = s.own
	s.payload = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: default}\n"
	s.update("u", v1alpha1.PhaseDone, time.Now())
	if st := s.look("u", v1alpha1.ResourcesFailed); !strings.Contains(st.Message, "ConfigMap/default/c") || !strings.Contains(st.Message, "refit-system/refit-controller") {
		t.Fatalf("%+v", st)
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ data, says string }{
		"nothing":                 {"", ""},
		"empty documents":         {"---\n---\n# a comment\n", ""},
		"no YAML":                 {"a: [", "document 1"},
		"no object":               {"- a\n- b\n", "document 1"},
		"no name":                 {"apiVersion: v1\nkind: ConfigMap\n", "metadata.name"},
		"a Secret":                {"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "every node reads a bundle"},
		"a Secret in a List":      {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n", "every node reads a bundle"},
		"an approval":             {"apiVersion: refit.dev/v1alpha1\nkind: Bundle\nmetadata: {name: b}\n", "must not approve"},
		"the same object twice":   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "twice"},
		"two kinds with one name": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n", ""},
	} {
		_, err := parse([]byte(c.data))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := parse([]byte(release1))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, u := range got {
		kinds = append(kinds, u.GetKind())
	}
	if fmt.Sprint(kinds) != "[CustomResourceDefinition Namespace ConfigMap ConfigMap Widget]" {
		t.Fatal(kinds)
	}
}

func TestRemovable(t *testing.T) {
	ours := []metav1.ManagedFieldsEntry{{Manager: FieldOwner, Operation: metav1.ManagedFieldsOperationApply}}
	for name, c := range map[string]struct {
		item   item
		uid    string
		fields []metav1.ManagedFieldsEntry
		ok     bool
	}{
		"the one that was applied":      {item{Kind: "ConfigMap", UID: "1"}, "1", ours, true},
		"one that was made anew":        {item{Kind: "ConfigMap", UID: "1"}, "2", ours, false},
		"one without an identity":       {item{Kind: "ConfigMap"}, "", ours, false},
		"one without any field of ours": {item{Kind: "ConfigMap", UID: "1"}, "1", nil, false},
		"a namespace":                   {item{Kind: "Namespace", UID: "1"}, "1", ours, false},
		"a volume":                      {item{Kind: "PersistentVolumeClaim", UID: "1"}, "1", ours, false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetUID("")
		if c.uid != "" {
			u.Object["metadata"] = map[string]any{"uid": c.uid}
		}
		u.SetManagedFields(c.fields)
		if removable(c.item, u) != c.ok {
			t.Errorf("%s: %v", name, !c.ok)
		}
	}
}
