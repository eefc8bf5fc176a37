package updatecmd

import (
	"testing"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// What a plan's own notes say of a control plane's move is not said again as a
// warning; what they do not say is.
func TestAControlPlanesMoveIsSaidOnce(t *testing.T) {
	p := model.Plan{Nodes: []model.NodePlan{{Node: "n1", Notes: []string{"the API server is unavailable"}}, {Node: "n2"}}}
	got := notInNotes([]explain.Blocker{
		{Reason: v1alpha1.ReasonAPIServerUnavailable, Object: "Node/n1"}, {Reason: v1alpha1.ReasonEtcdQuorum, Object: "Node/n1"},
		{Reason: v1alpha1.ReasonAPIServerUnavailable, Object: "Node/n2"}, {Reason: v1alpha1.ReasonEtcdNotDowngraded, Object: "Node/n1"}}, p)
	if len(got) != 2 || got[0].Object != "Node/n2" || got[1].Reason != v1alpha1.ReasonEtcdNotDowngraded {
		t.Errorf("%+v", got)
	}
}
