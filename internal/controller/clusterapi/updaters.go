package clusterapi

import (
	"slices"

	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// Names of refit's own updaters of machines.
const (
	// updaterKubernetes changes the Kubernetes version: refit in the machine's own
	// cluster updates its node.
	updaterKubernetes = "kubernetes"
	// updaterNewMachines owns fields that only affect new machines.
	updaterNewMachines = "new-machines"
)

// kubeadmFields are fields that Cluster API itself sets or removes with the version, for
// kubeadm and not for the machine: a feature gate that has become the default.
var kubeadmFields = []string{capidiff.Bootstrap + "/spec/clusterConfiguration/featureGates/ControlPlaneKubeletLocalMode"}

// kubernetesUpdater claims a version if refit supports the move.
func kubernetesUpdater(q *question) updateplan.Updater {
	return updateplan.Updater{Name: updaterKubernetes, Claim: func(a updateplan.Question) updateplan.Claim {
		var mine []model.Change
		version, moves := q.changes[capidiff.PathVersion]
		why := capidiff.VersionMove(version.From, version.To)
		for _, d := range a.Left {
			switch {
			case d.Path == capidiff.Machine+"/spec/failureDomain":
				q.addReason(d.Path, updaterKubernetes, "a running machine cannot move to another failure domain")
			case d.Path == capidiff.PathVersion && why != "":
				q.addReason(d.Path, updaterKubernetes, why)
			case d.Path == capidiff.PathVersion, moves && why == "" && slices.Contains(kubeadmFields, d.Path):
				mine = append(mine, d)
			}
		}
		if len(mine) == 0 {
			return updateplan.Claim{}
		}
		return updateplan.Claim{Steps: []model.Step{{Verb: "move", From: version.From, To: version.To, Disruption: model.DisruptionDrain, Changes: mine}}}
	}}
}

// newMachinesUpdater claims the fields that a person declared as affecting new machines only:
// running machines need no change.
func newMachinesUpdater(paths []string) updateplan.Updater {
	return updateplan.Updater{Name: updaterNewMachines, Claim: func(a updateplan.Question) updateplan.Claim {
		var mine []model.Change
		for _, d := range a.Left {
			if isBelow(d.Path, paths) && d.Path != capidiff.PathVersion {
				mine = append(mine, d)
			}
		}
		if len(mine) == 0 {
			return updateplan.Claim{}
		}
		return updateplan.Claim{Steps: []model.Step{{Verb: "declare", Disruption: model.DisruptionNone, Changes: mine}}}
	}}
}

func isBelow(path string, list []string) bool { return hooks.Below(path, list) }
