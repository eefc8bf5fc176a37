package updateplan

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
)

func TestMinorsBetween(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`v?[0-9]{1,3}(\.[0-9]{1,3}){0,3}(-rc\.1)?(\+k)?`)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		va, vb := componentversion.ParseKubernetes(a), componentversion.ParseKubernetes(b)
		if minorsBetween(a, b) != minorsBetween(b, a) {
			t.Fatalf("%s and %s", a, b)
		}
		if va != nil && vb != nil && va.Major() == vb.Major() && minorsBetween(a, b) != max(int(va.Minor())-int(vb.Minor()), int(vb.Minor())-int(va.Minor())) {
			t.Fatalf("minors between %s and %s", a, b)
		}
	})
}

// A distribution publishes the same Kubernetes release again, with fixes of its own.
func TestAnotherBuildOfARelease(t *testing.T) {
	t.Parallel()
	plan := func(from, to string) Outcome {
		return Make(input(func(in *Input) { in.Target.Kubernetes, in.KubeadmVersion = to, from }, cp("n1", from), worker("n2", from)))
	}
	newer := plan("v1.35.4+vendor1", "v1.35.4+vendor2")
	if newer.NothingToDo() || len(newer.Plan.Nodes) != 2 || len(newer.Blockers) > 0 {
		t.Errorf("a newer build is an update of both nodes: %s", tell(newer))
	}
	for _, n := range newer.Plan.Nodes {
		for _, s := range n.Steps {
			if s.ID == "kubelet" && s.Disruption != model.DisruptionRestart {
				t.Errorf("another build of a release asks for %s", s.Disruption)
			}
		}
	}
	if o := plan("v1.35.4+vendor2", "v1.35.4+vendor2"); !o.NothingToDo() {
		t.Errorf("the same build is no update: %s", tell(o))
	}
	older := plan("v1.35.4+vendor10", "v1.35.4+vendor9")
	if len(older.Blockers) == 0 || older.Blockers[0].Reason != reasonOlderThanRunning {
		t.Errorf("an older build is a downgrade: %s", tell(older))
	}
}
