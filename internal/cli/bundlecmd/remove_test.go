package bundlecmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/render"
)

// heldBundle is an approved Bundle with a use.
func heldBundle(use v1alpha1.BundleUse) *v1alpha1.Bundle {
	d := "sha256:" + strings.Repeat("a", 64)
	return &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "edge-1.0.0"}, Spec: v1alpha1.BundleSpec{Digest: d},
		Status: v1alpha1.BundleStatus{Digest: d, Version: "1.0.0", Loaded: "1/1", Retention: &v1alpha1.BundleRetention{Use: use, Message: "because of it", OwnImages: 3, FreesBytes: 5 << 20}}}
}

func clusterOf(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	node := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n1"}, Status: v1alpha1.NodeUpdateStatus{
		Bundles: []string{"sha256:" + strings.Repeat("a", 64)}, FileSystems: []v1alpha1.FileSystem{{Name: "state", FreeBytes: 1 << 30}, {Name: "images", FreeBytes: 2 << 30}}}}
	other := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n2"}}
	return fakeclient.NewClientBuilder().WithScheme(s).WithObjects(append(objects, node, other)...).Build()
}

func removal(t *testing.T, cl client.Client, name, format string, change func(*removeCall)) (out string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	r := &removeCall{Access: &inputs.Access{Out: &o, Err: &e}, yes: true, output: &format}
	if change != nil {
		change(r)
	}
	err = r.run(t.Context(), cl, &o, name)
	return o.String() + e.String(), err
}

func isThere(t *testing.T, cl client.Client) bool {
	t.Helper()
	var l v1alpha1.BundleList
	if err := cl.List(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	return len(l.Items) == 1
}

// A bundle that is needed stays, and the error names the reason and the next step.
func TestRemoveRefusesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1alpha1.Bundle)
		want   []string
	}{
		"it runs":               {func(b *v1alpha1.Bundle) { b.Status.Retention.Use = v1alpha1.BundleRuns }, []string{"because of it", "refit plan --to"}},
		"an update names it":    {func(b *v1alpha1.Bundle) { b.Status.Retention.Use = v1alpha1.BundleUpdate }, []string{"because of it", "finish that update"}},
		"a rollback needs it":   {func(b *v1alpha1.Bundle) { b.Status.Retention.Use = v1alpha1.BundleRollback }, []string{"because of it", "keepReleases"}},
		"a person holds it":     {func(b *v1alpha1.Bundle) { b.Status.Retention.Use = v1alpha1.BundleHeld }, []string{"because of it", "spec.keep"}},
		"it is not known yet":   {func(b *v1alpha1.Bundle) { b.Status.Retention = nil }, []string{"has not reported yet"}},
		"it was changed since":  {func(b *v1alpha1.Bundle) { b.Generation = 7 }, []string{"has not reported yet"}},
		"it is only discovered": {func(b *v1alpha1.Bundle) { b.Spec.Digest, b.Status.Retention = "", nil }, []string{"not approved"}},
		"keys approve it":       {func(b *v1alpha1.Bundle) { b.Spec.Digest = "" }, []string{"revokedDigests"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := heldBundle(v1alpha1.BundleWaits)
			c.change(b)
			cl := clusterOf(t, b)
			out, err := removal(t, cl, "edge-1.0.0", render.Table, nil)
			if console.ExitCode(err) != console.ExitBlocked || !isThere(t, cl) {
				t.Fatalf("%v, there %t: %s", err, isThere(t, cl), out)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
		})
	}
}

// A bundle is found by name, digest or version. --dry-run removes nothing.
func TestRemove(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"edge-1.0.0", "1.0.0", "sha256:" + strings.Repeat("a", 64)} {
		cl := clusterOf(t, heldBundle(v1alpha1.BundleReleased))
		out, err := removal(t, cl, name, render.Table, func(r *removeCall) { r.dryRun, r.yes = true, false })
		if err != nil || !isThere(t, cl) || !strings.Contains(out, "n1") || strings.Contains(out, "n2") || !strings.Contains(out, "5.0 MiB") || !strings.Contains(out, "2.0 GiB") {
			t.Errorf("dry run: %v %s", err, out)
		}
		if out, err = removal(t, cl, name, render.Table, nil); err != nil || isThere(t, cl) || !strings.Contains(out, "removed Bundle edge-1.0.0") || !strings.Contains(out, "no update of this cluster is complete yet") {
			t.Errorf("%v %s", err, out)
		}
	}
	cl := clusterOf(t, heldBundle(v1alpha1.BundleWaits), &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:b"}, Status: v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseDone}})
	out, err := removal(t, cl, "1.0.0", render.JSON, nil)
	var v removalView
	if jsonErr := json.Unmarshal([]byte(out), &v); err != nil || jsonErr != nil || !v.Removed || v.FreesBytes != 5<<20 || len(v.Nodes) != 1 || v.Nodes[0].FreeBytes != 2<<30 {
		t.Errorf("%v %v %s", err, jsonErr, out)
	}
	if _, err := removal(t, cl, "other", render.Table, nil); console.ExitCode(err) != console.ExitUsage {
		t.Error(err)
	}
}

// The list of the cluster's bundles shows what nodes hold each for.
func TestListOfACluster(t *testing.T) {
	t.Parallel()
	cl := clusterOf(t, heldBundle(v1alpha1.BundleRollback))
	var out bytes.Buffer
	if err := listCluster(t.Context(), cl, &out, render.Table); err != nil || !strings.Contains(out.String(), "Rollback") || !strings.Contains(out.String(), "because of it") || !strings.Contains(out.String(), "5.0 MiB") {
		t.Errorf("%v %s", err, out.String())
	}
	out.Reset()
	var v clusterListView
	if err := listCluster(t.Context(), cl, &out, render.JSON); err != nil || json.Unmarshal(out.Bytes(), &v) != nil || len(v.Bundles) != 1 || v.Bundles[0].Use != "Rollback" {
		t.Errorf("%v %s", err, out.String())
	}
}
