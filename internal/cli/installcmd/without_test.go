package installcmd

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

func TestWithoutNamesTheAreas(t *testing.T) {
	t.Parallel()
	c := New(&inputs.Access{Out: io.Discard, Err: io.Discard})
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs([]string{"--from", "x", "--without", "os-images,osimages"})
	err := c.ExecuteContext(t.Context())
	if console.ExitCode(err) != console.ExitUsage || !strings.Contains(err.Error(), "boot-images, os-images, image-tags, cluster-api") {
		t.Errorf("%v", err)
	}
}

// A controller that has the areas still does not count as the new one.
func TestTheControllerWithoutAreasIsAwaited(t *testing.T) {
	t.Parallel()
	out, err := areas.Parse([]string{areas.OSImages})
	if err != nil {
		t.Fatal(err)
	}
	p := controllerPod("p", "refit:1", corev1.ConditionTrue)
	if !isReady(p, "refit:1", areas.Set{}) || isReady(p, "refit:1", out) {
		t.Error("a controller with all areas")
	}
	p.Spec.Containers[0].Command = []string{"/refit-controller", "-without=os-images"}
	if isReady(p, "refit:1", areas.Set{}) || !isReady(p, "refit:1", out) {
		t.Error("a controller without OS images")
	}
}

// Areas are left out of an installation that had them, and come back. Kinds that have objects stay.
func TestLeaveOut(t *testing.T) {
	cfg := apitest.Start(t) // with all areas
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	out, err := areas.Parse(areas.Names())
	if err != nil {
		t.Fatal(err)
	}
	all, err := config.Manifests("refit.example/refit:1")
	if err != nil {
		t.Fatal(err)
	}
	kept := config.Without(all, out)
	apply := func(objects []*unstructured.Unstructured) {
		t.Helper()
		for _, o := range objects {
			if err := applyObject(t.Context(), c, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	var said bytes.Buffer
	i := installer{&inputs.Access{Out: io.Discard, Err: &said}}
	leave := func() string {
		t.Helper()
		said.Reset()
		apply(kept)
		if err := i.removeAreas(t.Context(), c, all, kept, out); err != nil {
			t.Fatal(err)
		}
		return said.String()
	}
	stream := &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.BootImageStreamSpec{URL: &v1alpha1.StreamURL{URL: "https://streams.example/fcos.json"}}}
	if err := c.Create(t.Context(), stream); err != nil {
		t.Fatal(err)
	}

	text := leave()
	for _, want := range []string{"boot-images is left out, and its kinds stay", "1 BootImageStream (mine)", "kubectl delete bootimagestreams.refit.dev --all", "namespace refit-builds stays"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	var have []string
	for _, o := range all {
		if there(t, c, o) && !slices.ContainsFunc(kept, func(k *unstructured.Unstructured) bool { return identity(k) == identity(o) }) {
			have = append(have, identity(o))
		}
	}
	if want := []string{"CustomResourceDefinition /bootimagepolicies.refit.dev", "CustomResourceDefinition /bootimagestreams.refit.dev",
		"CustomResourceDefinition /machinesources.refit.dev", "Namespace /refit-builds"}; !slices.Equal(have, want) {
		t.Errorf("what stays: %v", have)
	}

	if err := c.Delete(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if text := leave(); !strings.Contains(text, "removed 3 objects") || strings.Contains(text, "kinds stay") {
		t.Errorf("%s", text)
	}
	apply(all)
	if err := i.recordAreas(t.Context(), c, areas.Set{}); err != nil {
		t.Error(err)
	}
	// The API server needs some time to serve a new kind; install waits for it by the controller's readiness.
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := c.Create(ctx, &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: stream.Spec})
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Errorf("an area that was left out comes back: %v", err)
	}
}

// An object that is being deleted accepts a change and is gone a moment later: install applies it
// again, or names what it waits for.
func TestApplyToAnObjectThatIsBeingDeleted(t *testing.T) {
	cfg := apitest.Start(t)
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "held", "namespace": "default"}, "data": map[string]any{"a": "b"}}}
	held := obj.DeepCopy()
	held.SetFinalizers([]string{"refit.example/held"})
	if err := c.Create(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if err := applyObject(short, c, obj); err == nil || !strings.Contains(err.Error(), "ConfigMap held: it is being deleted and waits for its finalizers [refit.example/held]") {
		t.Errorf("%v", err)
	}
	released := make(chan error, 1)
	go func() {
		time.Sleep(time.Second)
		released <- c.Patch(context.Background(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}()
	if err := applyObject(t.Context(), c, obj); err != nil {
		t.Error(err)
	}
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	if !there(t, c, obj) {
		t.Error("the object is gone")
	}
}

// there reports whether an object is there and stays.
func there(t *testing.T, c client.Client, o *unstructured.Unstructured) bool {
	t.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	err := c.Get(t.Context(), client.ObjectKeyFromObject(o), live)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil && live.GetDeletionTimestamp() == nil
}
