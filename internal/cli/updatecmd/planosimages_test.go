package updatecmd

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// A plan that boots another image says what changed in it.
func TestPlanSaysWhatIsInTheImage(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{
		{Name: "edge", Image: "r/os@sha256:1", Message: "build edge-1 made it; 1 package changed: openssl 3.0.1 -> 3.0.2"}, {Name: "other", Image: "r/os@sha256:1"}}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).Build()
	step := func(path string) model.Plan {
		return model.Plan{Nodes: []model.NodePlan{{Node: "n1", Pool: "edge", Steps: []model.Step{{Updater: "os-image", Changes: []model.Change{{Path: path}}}}}}}
	}
	for path, want := range map[string][]string{
		model.FieldOSImage:         {"pool edge boots r/os@sha256:1: build edge-1 made it; 1 package changed: openssl 3.0.1 -> 3.0.2"},
		model.FieldKernelArguments: nil,
	} {
		got, err := describeOSImages(context.Background(), c, step(path))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}
