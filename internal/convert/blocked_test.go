package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
)

// What is incompatible blocks its pool; a finding about the image blocks the cluster, also if it is
// the second one of a source.
func TestBlockedTargets(t *testing.T) {
	t.Parallel()
	source := func(name, policy string, fs ...v1alpha1.SkewFinding) *v1alpha1.MachineSource {
		return &v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSourceSpec{Manager: &v1alpha1.MachineManager{Kind: "MachineDeployment", Name: name}},
			Status: v1alpha1.MachineSourceStatus{Policy: policy, Skew: fs}}
	}
	runc := v1alpha1.SkewFinding{Target: "1.37.0", Rule: "runc", Message: "runc is gone", PoolOnly: true}
	old := v1alpha1.SkewFinding{Target: "1.37.0", Rule: "old", Message: "too old"}
	waived, unknown := old, old
	waived.Waived, unknown.Target = "until spring", ""
	var got []string
	for _, b := range convert.BlockedTargets(&v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, []*v1alpha1.MachineSource{
		source("pool", "p", runc), source("both", "p", runc, old), source("both-again", "p", old, runc), source("waived", "p", waived, unknown), source("other", "q", old)}) {
		kind := "cluster"
		if b.PoolOnly {
			kind = "pool"
		}
		if b.Major != 1 || b.Minor != 37 || b.Name != b.Source || b.Message == "" {
			t.Errorf("%+v", b)
		}
		got = append(got, b.Source+" blocks the "+kind)
	}
	if diff := cmp.Diff([]string{"pool blocks the pool", "both blocks the cluster", "both-again blocks the cluster"}, got); diff != "" {
		t.Error(diff)
	}
}
