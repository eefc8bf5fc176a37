package rolloutfacts

import (
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// RunningUpdate returns the first ClusterUpdate that has started and is not done, as Kind/name.
func RunningUpdate(all []v1alpha1.ClusterUpdate) string {
	var names []string
	for i := range all {
		if st := all[i].Status; st.StartedAt != nil && st.Phase != v1alpha1.PhaseDone {
			names = append(names, "ClusterUpdate/"+all[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}
