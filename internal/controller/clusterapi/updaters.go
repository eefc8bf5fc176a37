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
	// updaterKubernetes moves the version of Kubernetes: the machine's node is moved
	// by refit in the machine's own cluster.
	updaterKubernetes = "kubernetes"
	// updaterNewMachines owns fields that say what new machines start from.
	updaterNewMachines = "new-machines"
)

// kubeadmsOwn are fields that Cluster API itself sets or drops with the version, for
// kubeadm and not for the machine: a feature gate that has become the default.
var kubeadmsOwn = []string{capidiff.Bootstrap + "/spec/clusterConfiguration/featureGates/ControlPlaneKubeletLocalMode"}

// kubernetesUpdater claims a version by where it comes from and where it goes.
func kubernetesUpdater(q *question) updateplan.Updater {
	return updateplan.Updater{Name: updaterKubernetes, Claim: func(a updateplan.Question) updateplan.Claim {
		var mine []model.Change
		version, moves := q.changes[capidiff.PathVersion]
		why := capidiff.VersionMove(version.From, version.To)
		for _, d := range a.Left {
			switch {
			case d.Path == capidiff.Machine+"/spec/failureDomain":
				q.refuse(d.Path, updaterKubernetes, "a machine that runs stays where it is")
			case d.Path == capidiff.PathVersion && why != "":
				q.refuse(d.Path, updaterKubernetes, why)
			case d.Path == capidiff.PathVersion, moves && why == "" && slices.Contains(kubeadmsOwn, d.Path):
				mine = append(mine, d)
			}
		}
		if len(mine) == 0 {
			return updateplan.Claim{}
		}
		return updateplan.Claim{Steps: []model.Step{{Verb: "move", From: version.From, To: version.To, Disruption: model.DisruptionDrain, Changes: mine}}}
	}}
}

// newMachinesUpdater claims the fields that a person declared to be about new
// machines only: there is nothing to do on one that runs.
func newMachinesUpdater(paths []string) updateplan.Updater {
	return updateplan.Updater{Name: updaterNewMachines, Claim: func(a updateplan.Question) updateplan.Claim {
		var mine []model.Change
		for _, d := range a.Left {
			if below(d.Path, paths) && d.Path != capidiff.PathVersion {
				mine = append(mine, d)
			}
		}
		if len(mine) == 0 {
			return updateplan.Claim{}
		}
		return updateplan.Claim{Steps: []model.Step{{Verb: "declare", Disruption: model.DisruptionNone, Changes: mine}}}
	}}
}

func below(path string, list []string) bool { return hooks.Below(path, list) }
