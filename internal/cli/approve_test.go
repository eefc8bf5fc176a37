package cli

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Who may move the cluster may not approve: the refusal names the right and the role.
func TestApproveErrorNamesTheRight(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "refit.dev", Resource: "bundles"}, "b", errors.New("no"))
	said := approveError("Bundle b", forbidden).Error()
	for _, want := range []string{"cannot approve Bundle b", "verb approve on bundles.refit.dev", "--clusterrole=refit-approver"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q does not contain %q", said, want)
		}
	}
	if said := approveError("Bundle b", errors.New("timeout")).Error(); strings.Contains(said, "clusterrole") || !strings.Contains(said, "timeout") {
		t.Errorf("%q", said)
	}
}
