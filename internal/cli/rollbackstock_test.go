package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/model"
)

const (
	stockA = "registry.example/os/stock@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	stockB = "registry.example/os/stock@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func reportOf(fields map[string]string) *v1alpha1.NodeUpdate {
	return &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: fields}}}
}

// All nodes of a pool ran one image before refit, or there is no way back for the pool.
func TestChooseStock(t *testing.T) {
	t.Parallel()
	a, b := reportOf(map[string]string{model.FieldOSStock: stockA}), reportOf(map[string]string{model.FieldOSStock: stockB})
	for name, c := range map[string]struct {
		reports map[string]*v1alpha1.NodeUpdate
		want    string
		says    []string
	}{
		"all ran one":                       {map[string]*v1alpha1.NodeUpdate{"n1": a, "n2": a}, stockA, nil},
		"a host of packages does not count": {map[string]*v1alpha1.NodeUpdate{"n1": a, "n2": reportOf(map[string]string{"os/unsupported": "packages"})}, stockA, nil},
		"they differ":                       {map[string]*v1alpha1.NodeUpdate{"n1": a, "n3": b, "n2": a}, "", []string{"n1, n2 ran " + stockA, "n3 ran " + stockB}},
		"one booted from no image":          {map[string]*v1alpha1.NodeUpdate{"n1": a, "n2": reportOf(map[string]string{model.FieldOSStock: "none: the deployment 4f is from no image"})}, "", []string{"n2 ran no image that could be booted again (the deployment 4f is from no image)"}},
		"one has no record":                 {map[string]*v1alpha1.NodeUpdate{"n1": a, "n2": reportOf(nil)}, "", []string{"no stock image is on record for n2"}},
		"one has no agent":                  {map[string]*v1alpha1.NodeUpdate{"n1": a, "n2": nil}, "", []string{"no stock image is on record for n2"}},
		"the pool is empty":                 {nil, "", []string{"no node that boots images"}},
	} {
		got, err := chooseStock("edge", c.reports)
		if got != c.want || (err == nil) != (c.says == nil) {
			t.Errorf("%s: %q %v", name, got, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) || console.ExitCode(err) != console.ExitBlocked {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A real API server: the pool gets an OSImage with its stock image, with the Secret that fetched the
// base, and --follow gives it back what it had.
func TestToStockAndBack(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	cfg := apitest.Start(t)
	as := func(cfg *rest.Config) client.Client {
		c, err := client.New(cfg, client.Options{Scheme: s})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := as(cfg)
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "edge"}}}
	pool := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: node.Labels}, OSImage: "edge"}}
	built := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: stockB, PullSecret: &v1alpha1.PullSecret{Name: "base"}}, Repository: "registry.example/os/edge", Secret: &v1alpha1.PullSecret{Name: "all"}}}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: v1alpha1.NodesNamespace}}
	if err := as(apitest.As(cfg, apitest.ControllerUser)).Create(ctx, nu); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{node, pool, built} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	var out, words bytes.Buffer
	o := &options{}
	o.Out, o.Err = &out, &words
	if err := o.useStock(ctx, c, pool, false); err == nil || pool.Spec.OSImage != "edge" {
		t.Fatalf("without a record: %v, %s", err, pool.Spec.OSImage)
	}
	nu.Status.Observed = &v1alpha1.Observed{Fields: map[string]string{model.FieldOSStock: stockA}}
	if err := as(apitest.AsNode(cfg, "n1")).Status().Update(ctx, nu); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call finds it done
		if err := o.useStock(ctx, c, pool, false); err != nil {
			t.Fatal(err)
		}
	}
	var got v1alpha1.UpdatePool
	var stock v1alpha1.OSImage
	if err := c.Get(ctx, client.ObjectKey{Name: "edge"}, &got); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKey{Name: "stock-edge"}, &stock); err != nil {
		t.Fatal(err)
	}
	if got.Spec.OSImage != "stock-edge" || stock.Spec.Image != stockA || stock.Spec.PullSecret == nil || stock.Spec.PullSecret.Name != "base" || !strings.Contains(words.String(), stockA) {
		t.Fatalf("%+v %+v %s", got.Spec, stock.Spec, words.String())
	}
	if err := leaveStock(ctx, c, &got); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKey{Name: "edge"}, &got); err != nil || got.Spec.OSImage != "edge" || got.Annotations[v1alpha1.AnnotationBeforeStock] != "" {
		t.Fatalf("%+v %v", got, err)
	}
	// An object of this name that a person made for another image is not taken.
	stock.Spec.Image = stockB
	if err := c.Update(ctx, &stock); err != nil {
		t.Fatal(err)
	}
	if err := o.useStock(ctx, c, &got, false); console.ExitCode(err) != console.ExitBlocked || got.Spec.OSImage != "edge" {
		t.Fatalf("%v %s", err, got.Spec.OSImage)
	}
}
