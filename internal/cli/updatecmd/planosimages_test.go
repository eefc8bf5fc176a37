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
	none := "pool edge, if the image does not come up: not reported: n1"
	for path, want := range map[string][]string{
		model.FieldOSImage:         {"pool edge boots r/os@sha256:1: build edge-1 made it; 1 package changed: openssl 3.0.1 -> 3.0.2", none},
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

// A plan that boots another image says which nodes return by themselves if it does not come up.
func TestPlanSaysWhichNodesReturnByThemselves(t *testing.T) {
	t.Parallel()
	node := func(driver, fallback string) map[string]string {
		return map[string]string{model.FieldOSDriver: driver, model.FieldOSBootFallback: fallback}
	}
	fields := map[string]map[string]string{"n1": node("bootc", model.ValueComplete), "n2": node("ostree", "panic,watchdog"), "n3": node("bootc", model.ValueComplete), "n4": node("sysext", ""), "n5": node("bootc", "")}
	for _, c := range []struct {
		nodes []string
		want  string
	}{
		{[]string{"n3", "n1"}, "return by themselves: n1, n3"},
		{[]string{"n1", "n2", "n4"}, "return by themselves: n1; stay down, without panic, watchdog: n2"},
		{[]string{"n5", "n6"}, "not reported: n5, n6"},
		{[]string{"n4"}, ""},
	} {
		if got := fallbackOf(c.nodes, fields); got != c.want {
			t.Errorf("%v: %q", c.nodes, got)
		}
	}
}
