package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
)

// The build that a pool rolls back to.
func TestTheBuildToGoBackTo(t *testing.T) {
	t.Parallel()
	build := func(name, phase, digest string, minute int64) v1alpha1.OSBuild {
		b := v1alpha1.OSBuild{Spec: v1alpha1.OSBuildSpec{OSImageUID: "u"}, Status: v1alpha1.OSBuildStatus{Phase: phase, Digest: digest}}
		b.Name, b.CreationTimestamp = name, metav1.NewTime(time.Unix(minute*60, 0))
		return b
	}
	node := func(back string) v1alpha1.NodeUpdate {
		return v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: map[string]string{fieldRollback: back}}}}
	}
	one, two, three := build("one", v1alpha1.BuildSucceeded, "d1", 1), build("two", v1alpha1.BuildSucceeded, "d2", 2), build("three", v1alpha1.BuildSucceeded, "d3", 3)
	other := build("other", v1alpha1.BuildSucceeded, "d2", 4)
	other.Spec.OSImageUID = "another"
	image := &v1alpha1.OSImage{Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{{Name: "edge", Build: "three"}}}}
	image.Name, image.UID = "edge", "u"
	for name, c := range map[string]struct {
		named  string
		builds []v1alpha1.OSBuild
		nodes  []v1alpha1.NodeUpdate
		want   string
		says   string
	}{
		"what nodes roll back to":                  {"", []v1alpha1.OSBuild{one, two, three}, []v1alpha1.NodeUpdate{node("d2"), {}}, "two", ""},
		"nodes differ: the newest":                 {"", []v1alpha1.OSBuild{one, two, three}, []v1alpha1.NodeUpdate{node("d1"), node("d2")}, "two", ""},
		"the one that the pool has is no way back": {"", []v1alpha1.OSBuild{one, three}, []v1alpha1.NodeUpdate{node("d3")}, "", "--to: one"},
		"nodes roll back to an unknown image":      {"", []v1alpha1.OSBuild{one, three}, []v1alpha1.NodeUpdate{node("stock")}, "", "--to: one"},
		"there is only the one that the pool has":  {"", []v1alpha1.OSBuild{three}, []v1alpha1.NodeUpdate{node("stock")}, "", "nothing to roll back to"},
		"named":                              {"one", []v1alpha1.OSBuild{one, two, three}, []v1alpha1.NodeUpdate{node("d2")}, "one", ""},
		"named is the one that the pool has": {"three", []v1alpha1.OSBuild{one, three}, nil, "three", ""},
		"named failed":                       {"bad", []v1alpha1.OSBuild{one, three, build("bad", v1alpha1.BuildFailed, "", 5)}, nil, "", "no successful build bad; it has one"},
		"a namesake's build of a deleted OSImage is no": {"", []v1alpha1.OSBuild{other, three}, []v1alpha1.NodeUpdate{node("d2")}, "", "nothing to roll back to"},
	} {
		got, err := chooseBuild("edge", c.named, image, c.builds, c.nodes)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || console.ExitCode(err) != console.ExitUsage) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
