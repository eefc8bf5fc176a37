package gatefacts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// Only nodes that boot another image by the plan are asked about; an image that is not
// counted is not prepulled.
func TestOSImagesOfThePlan(t *testing.T) {
	step := func(path string) []model.Step {
		return []model.Step{{ID: "os-image", Updater: "os-image", Changes: []model.Change{{Path: path}}}}
	}
	m := MovesOf(model.Plan{Nodes: []model.NodePlan{
		{Node: "n1", Pool: "edge", Steps: step(model.FieldOSImage)}, {Node: "n2", Pool: "edge", Steps: step(model.FieldOSImage)},
		{Node: "n3", Pool: "edge", Steps: step(model.FieldKernelArguments)}, {Node: "n4", Pool: "new", Steps: step(model.FieldOSImage)}}})
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{
		{Name: "edge", Image: "r/os@sha256:1", Prepulled: "7/9", Missing: []string{"n2", "n3"}, PrepullReason: "ImagesMissing", PrepullMessage: "they are fetching it"},
		{Name: "new", Image: "r/os@sha256:1"}, {Name: "other", Image: "r/os@sha256:1", Prepulled: "0/9"}}}}
	got, err := readOSImages(context.Background(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).Build(), m.booting)
	if err != nil {
		t.Fatal(err)
	}
	want := []gate.OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 2, Ready: 1, Reason: "ImagesMissing", Message: "they are fetching it"},
		{Pool: "new", Image: "r/os@sha256:1", Nodes: 1, Message: "nothing is known of it yet"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A dangerous argument closes the gate once for a pool, until a person accepts it.
func TestDangerousArgumentsCloseTheGate(t *testing.T) {
	t.Parallel()
	gets := func(node, pool, from, to string) model.NodePlan {
		return model.NodePlan{Node: node, Pool: pool, Steps: []model.Step{{ID: "os-image", Updater: "os-image", Changes: []model.Change{{Path: model.FieldKernelArguments, From: from, To: to}}}}}
	}
	m := MovesOf(model.Plan{Nodes: []model.NodePlan{gets("a", "edge", "", "quiet rd.break"), gets("b", "edge", "", "rd.break quiet"), gets("c", "core", "mem=1G", "mem=1G quiet")}})
	in := gate.Input{Arguments: m.arguments}
	no := func(in gate.Input) (out []string) {
		for _, b := range gate.Decide(in).Blockers {
			if b.Reason == v1alpha1.ReasonDangerousArguments {
				out = append(out, b.Message)
			}
		}
		return out
	}
	if got := no(in); len(got) != 1 || !strings.Contains(got[0], "pool edge") || !strings.Contains(got[0], "rd.break") {
		t.Errorf("%q", got)
	}
	in.Now = time.Now()
	in.Accepted = []gate.Risk{{Check: "kernel-arguments", Reason: "tried in the laboratory", Until: in.Now.Add(time.Hour)}}
	if got := no(in); len(got) != 0 {
		t.Errorf("accepted, and still %q", got)
	}
}
