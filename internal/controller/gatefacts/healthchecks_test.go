package gatefacts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// An expression sees one object, and its result must be true or false. Its cost is bounded, and
// none crashes the controller.
func TestExpressions(t *testing.T) {
	t.Parallel()
	object := map[string]any{"metadata": map[string]any{"name": "db", "labels": map[string]any{"a/b": "c"}},
		"spec":   map[string]any{"replicas": int64(3), "share": 0.5},
		"status": map[string]any{"readyReplicas": int64(2), "text": strings.Repeat("a", 1<<16), "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}, "none": nil}}
	long := "[1,2,3,4,5,6,7,8,9]"
	for name, c := range map[string]struct {
		expression string
		holds      bool
		invalid    bool
		says       string
	}{
		"a number":                 {expression: "object.status.readyReplicas == 2", holds: true},
		"two fields":               {expression: "object.status.readyReplicas >= object.spec.replicas"},
		"numbers of two types":     {expression: "object.spec.share < object.spec.replicas", holds: true},
		"a condition":              {expression: "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", holds: true},
		"a label":                  {expression: "object.metadata.labels['a/b'] == 'c'", holds: true},
		"a missing field, has":     {expression: "!has(object.status.failed)", holds: true},
		"a missing field, default": {expression: "object.status.?failed.orValue(0) == 0", holds: true},
		"null":                     {expression: "object.status.none == null", holds: true},
		"a missing field":          {expression: "object.status.failed == 0", says: "no such key: failed"},
		"a dynamic value":          {expression: "object.status.readyReplicas", invalid: true, says: "it gives int, and must give true or false"},
		"a division by zero":       {expression: "1 / (object.spec.replicas - 3) == 1", says: "division by zero"},
		"no boolean":               {expression: "'text'", invalid: true, says: "it gives string, and must give true or false"},
		"no CEL":                   {expression: "object.status.", invalid: true, says: "Syntax error"},
		"another variable":         {expression: "oldObject == null", invalid: true, says: "undeclared reference to 'oldObject'"},
		"a function that is not":   {expression: "env('HOME') == ''", invalid: true, says: "undeclared reference to 'env'"},
		"a loop in loops": {expression: fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, %[1]s.all(d, %[1]s.all(e, %[1]s.all(f, %[1]s.all(g, %[1]s.all(h, a+b+c+d+e+f+g+h > 0))))))))", long),
			invalid: true, says: "costs more than"},
		"a text that grows":     {expression: "(" + strings.Repeat("object.status.text + ", 40) + "'') == ''", invalid: true, says: "costs more than"},
		"a text that doubles":   {expression: "['a'].map(x, x + x).map(x, x + x).size() == 1", invalid: true, says: "undeclared reference to"},
		"a list that doubles":   {expression: "[[object, object]].exists(a, [[a, a]].exists(b, b == b))", invalid: true, says: "lists have only constants"},
		"a map that doubles":    {expression: "{'a': object}.exists(a, a == 'a')", invalid: true, says: "maps are empty"},
		"an optional that does": {expression: "optional.of(object).optMap(x, x == x).orValue(false)", invalid: true, says: "undeclared reference to"},
		"a list of constants":   {expression: "object.metadata.name in ['db', 'cache']", holds: true},
		"an empty list":         {expression: "object.status.?items.orValue([]).size() == 0 && object.?x.orValue({}) == {}", holds: true},
		"an expensive search":   {expression: "[1,2,3,4,5,6,7,8,9].all(x, [1,2,3,4,5,6,7,8,9].all(y, !object.status.text.matches('(a+)+(b+)+(a*)*$z')))", invalid: true, says: "costs more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cond, err := compile(c.expression)
			holds := false
			for err == nil && cond.left > 0 {
				if holds, err = cond.holds(t.Context(), object); holds || err != nil || !c.invalid {
					break
				}
			}
			if holds != c.holds || (err != nil) != (c.says != "") || errors.Is(err, errInvalid) != c.invalid {
				t.Fatalf("%t %v", holds, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
		})
	}
}

// The cost of a check is bounded over all its objects too.
func TestTheCostOfACheckIsBounded(t *testing.T) {
	t.Parallel()
	cond, err := compile("object.text.matches('a*b')")
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{"text": strings.Repeat("a", 1<<20)}
	for n := range maxChecked {
		if _, err := cond.holds(t.Context(), object); errors.Is(err, errInvalid) {
			if n == 0 {
				t.Errorf("one object alone is refused: %v", err)
			}
			return
		}
	}
	t.Error("every object was evaluated")
}

func TestAnEvaluationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cond, err := compile("object.list.all(x, x > 0)")
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, 10_000)
	for i := range list {
		list[i] = int64(1)
	}
	if ok, err := cond.holds(ctx, map[string]any{"list": list}); ok || err == nil {
		t.Error("it was evaluated to its end")
	}
}

func deployment(ns, name, app string, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": app}}, Status: appsv1.DeploymentStatus{ReadyReplicas: ready}}
}

func poolWith(cs ...v1alpha1.HealthCheck) *v1alpha1.UpdatePool {
	return &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "p1", Generation: 1}, Spec: v1alpha1.UpdatePoolSpec{HealthChecks: cs}}
}

const twoReady = "object.status.?readyReplicas.orValue(0) >= 2"

// readerOf reads from objects; fail, if set, answers instead.
func readerOf(t *testing.T, fail func(kind string) error, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kindOf := func(o runtime.Object) error {
		if fail == nil {
			return nil
		}
		return fail(o.GetObjectKind().GroupVersionKind().Kind)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := kindOf(o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := kindOf(l); err != nil {
				return err
			}
			return c.List(ctx, l, opts...)
		}}).Build()
}

// Every reason for which a health check does not pass has its word, the check, the object and
// the check's own message.
func TestWhyAHealthCheckDoesNotPass(t *testing.T) {
	t.Parallel()
	apps := func(change func(*v1alpha1.CheckedObjects)) v1alpha1.HealthCheck {
		c := v1alpha1.HealthCheck{Name: "shop", Objects: v1alpha1.CheckedObjects{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop"}, Expression: twoReady, Message: "the shop needs two replicas"}
		change(&c.Objects)
		return c
	}
	named := func(o *v1alpha1.CheckedObjects) { o.Name = "db" }
	gr := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for name, c := range map[string]struct {
		check   v1alpha1.HealthCheck
		fail    error
		objects []client.Object
		want    string // reason and message, "" if it passes
		person  bool
	}{
		"a named object passes":      {check: apps(named), objects: []client.Object{deployment("shop", "db", "db", 2)}},
		"a named object fails":       {check: apps(named), objects: []client.Object{deployment("shop", "db", "db", 1)}, want: "HealthCheckFailed pool edge: health check shop: Deployment shop/db: the shop needs two replicas"},
		"a named object is not here": {check: apps(named), want: "HealthCheckFailed pool edge: health check shop: there is no Deployment shop/db"},
		"all of a namespace": {check: apps(func(*v1alpha1.CheckedObjects) {}), objects: []client.Object{deployment("shop", "a", "", 0), deployment("shop", "b", "", 1), deployment("shop", "c", "", 2), deployment("other", "d", "", 0)},
			want: "HealthCheckFailed pool edge: health check shop: Deployment shop/a, shop/b: the shop needs two replicas"},
		"a selector": {check: apps(func(o *v1alpha1.CheckedObjects) {
			o.Selector, o.Namespace = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, ""
		}),
			objects: []client.Object{deployment("shop", "a", "x", 2), deployment("shop", "b", "y", 1), deployment("other", "d", "x", 0)}, want: "HealthCheckFailed pool edge: health check shop: Deployment other/d: the shop needs two replicas"},
		"nothing is selected": {check: apps(func(*v1alpha1.CheckedObjects) {}), want: "HealthCheckFailed pool edge: health check shop: there is no Deployment that it selects"},
		"without a message":   {check: v1alpha1.HealthCheck{Name: "shop", Objects: apps(named).Objects, Expression: "false"}, objects: []client.Object{deployment("shop", "db", "", 2)}, want: "HealthCheckFailed pool edge: health check shop: Deployment shop/db: the expression is not true: false"},
		"a missing field":     {check: v1alpha1.HealthCheck{Name: "shop", Objects: apps(named).Objects, Expression: "object.status.x == 1"}, objects: []client.Object{deployment("shop", "db", "", 2)}, want: "HealthCheckFailed pool edge: health check shop: Deployment shop/db: (no such key: x)"},
		"a bad expression":    {check: v1alpha1.HealthCheck{Name: "shop", Objects: apps(named).Objects, Expression: "1"}, want: "HealthCheckInvalid pool edge: health check shop: the expression is not valid: it gives int, and must give true or false", person: true},
		"no right":            {check: apps(named), fail: apierrors.NewForbidden(gr, "db", errors.New("no")), want: `HealthCheckForbidden pool edge: health check shop: the controller may not read Deployment of apps/v1: deployments.apps "db" is forbidden: no`, person: true},
		"no kind":             {check: apps(named), fail: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}}, want: "HealthCheckInvalid pool edge: health check shop: the API server has no kind Deployment in apps/v1", person: true},
		"no API server":       {check: apps(named), fail: errors.New("connection refused"), want: "HealthCheckFailed pool edge: health check shop: Deployment cannot be read: connection refused"},
		"a Secret":            {check: apps(func(o *v1alpha1.CheckedObjects) { o.APIVersion, o.Kind = "v1", "Secret" }), want: "HealthCheckInvalid pool edge: health check shop: a health check reads no Secret", person: true},
		"files of nodes":      {check: apps(func(o *v1alpha1.CheckedObjects) { o.APIVersion, o.Kind, o.Namespace = "v1", "ConfigMap", "refit-nodes" }), want: "HealthCheckInvalid pool edge: health check shop: a health check reads no ConfigMap of refit's namespaces", person: true},
		"no API version":      {check: apps(func(o *v1alpha1.CheckedObjects) { o.APIVersion = "a/b/c" }), want: "HealthCheckInvalid pool edge: health check shop: unexpected GroupVersion string: a/b/c", person: true},
		"an invalid selector": {check: apps(func(o *v1alpha1.CheckedObjects) {
			o.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}
		}), want: "HealthCheckInvalid pool edge: health check shop: ", person: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := readerOf(t, func(string) error { return c.fail }, c.objects...)
			got := EvaluateChecks(t.Context(), live, poolWith(c.check))
			if c.want == "" {
				if len(got) != 0 {
					t.Errorf("%+v", got)
				}
				return
			}
			if len(got) != 1 || !strings.HasPrefix(got[0].Reason+" "+got[0].Message, c.want) || got[0].Waiting == c.person || got[0].Fix == "" || got[0].Object != "UpdatePool/edge" {
				t.Errorf("%+v\nwant %s", got, c.want)
			}
		})
	}
}

func TestTooManyObjectsAreNotRead(t *testing.T) {
	t.Parallel()
	var many []client.Object
	for i := range maxChecked + 1 {
		many = append(many, deployment("shop", fmt.Sprintf("d%03d", i), "", 2))
	}
	check := v1alpha1.HealthCheck{Name: "shop", Objects: v1alpha1.CheckedObjects{APIVersion: "apps/v1", Kind: "Deployment"}, Expression: twoReady}
	if got := EvaluateChecks(t.Context(), readerOf(t, nil, many...), poolWith(check)); len(got) != 1 || got[0].Reason != v1alpha1.ReasonHealthCheckInvalid || !strings.Contains(got[0].Message, "more than 500 objects") {
		t.Errorf("%+v", got)
	}
	if got := EvaluateChecks(t.Context(), readerOf(t, nil, many[1:]...), poolWith(check)); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// A failure counts for seconds, so that a rollout that waits does not read at every event. A
// check that passes is asked each time. An accepted risk asks nothing.
func TestWhenARolloutAsks(t *testing.T) {
	t.Parallel()
	reads, ready := 0, int32(1)
	check := v1alpha1.HealthCheck{Name: "shop", Objects: v1alpha1.CheckedObjects{APIVersion: "apps/v1", Kind: "Deployment"}, Expression: twoReady}
	p, u := poolWith(check), &v1alpha1.ClusterUpdate{}
	g := &Gatherer{}
	ask := func(want string, now time.Time) {
		t.Helper()
		g.Live = readerOf(t, func(string) error { reads++; return nil }, deployment("shop", "db", "", ready))
		got := g.Unwell(t.Context(), p, u, now)
		if s := fmt.Sprintf("%d after %d", len(got), reads); s != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
	ask("1 after 1", noon)
	ready = 2
	ask("1 after 1", noon.Add(failedFor-1))
	ask("0 after 2", noon.Add(failedFor))
	ready = 1
	ask("1 after 3", noon.Add(failedFor))
	p.Generation++
	ask("1 after 4", noon.Add(failedFor))
	u.Spec.AcceptedRisks = []v1alpha1.AcceptedRisk{{Check: gate.HealthChecks, Until: metav1.NewTime(noon.Add(time.Hour))}}
	ask("0 after 4", noon.Add(time.Minute))
	ask("1 after 5", noon.Add(time.Hour))
}

// The gate asks only pools with nodes in the plan.
func TestTheGateAsksThePoolsOfThePlan(t *testing.T) {
	t.Parallel()
	check := v1alpha1.HealthCheck{Name: "shop", Objects: v1alpha1.CheckedObjects{APIVersion: "apps/v1", Kind: "Deployment"}, Expression: twoReady}
	other := poolWith(check)
	other.Name, other.UID = "other", "p2"
	w := Snapshot{Now: noon, Pools: []v1alpha1.UpdatePool{*poolWith(check), *other}, Moves: MovesOf(model.Plan{Nodes: []model.NodePlan{{Node: "a", Pool: "edge"}}})}
	var in gate.Input
	if err := (&Gatherer{Live: readerOf(t, nil)}).fillHealth(t.Context(), w, &in, time.Minute); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range gate.Decide(in).Blockers {
		if strings.HasPrefix(b.Reason, "HealthCheck") {
			got = append(got, b.Message)
		}
	}
	if diff := cmp.Diff([]string{"pool edge: health check shop: there is no Deployment that it selects"}, got); diff != "" {
		t.Error(diff)
	}
}
