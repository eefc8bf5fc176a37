package updateplan

import (
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// manifestWarnings are about the manifests of a control-plane node that moves: what of them
// kubeadm would not write, so that the move replaces it, and why the move takes longer.
func manifestWarnings(q Question, ds []model.Change) []model.Blocker {
	if !slices.ContainsFunc(ds, func(d model.Change) bool { return d.Path == PathControlPlane }) {
		return nil
	}
	var out []model.Blocker
	if changes := q.Current[model.FieldManifestChanges]; changes != "" {
		out = append(out, model.Blocker{Reason: reasonManifestChanged, Object: "Node/" + q.Node.Name,
			Message: "manifests of node " + q.Node.Name + " differ from what kubeadm writes, and the update replaces them: " + changes,
			Fix:     "to keep it, put it into kubeadm's ClusterConfiguration, or into a patch in the directory that spec.kubeadmPatches of the UpdatePool names"})
	}
	if problem := q.Current[model.FieldManifestProblem]; problem != "" && !poolOf(q).Kubeadm {
		out = append(out, model.Blocker{Reason: reasonDryRunFailed, Object: "Node/" + q.Node.Name,
			Message: "kubeadm upgrade replaces the control plane of node " + q.Node.Name + " component by component, because kubeadm's dry run fails: " + problem,
			Fix:     "nothing, if the API server may be unavailable for minutes; else repair what the message names"})
	}
	return out
}
