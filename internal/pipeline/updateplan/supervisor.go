package updateplan

import (
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// deadlineSupervisor is that of the step supervisor, in seconds.
const deadlineSupervisor = 1800

// Supervised reports whether a version is of a distribution whose control plane is not made
// of kubeadm's static pods: the node's agent observes its version, not its pods.
func Supervised(version string) bool {
	row, _ := distribution.ByName(distribution.SplitVersion(version).Distribution)
	return row.Supervised
}

// supervised returns the distribution of a node whose one program starts container runtime,
// kubelet and the rest, and is replaced by the updater supervisor. The kubelet's version
// says it.
func supervised(n Node) (distribution.Row, bool) {
	row, ok := distribution.ByName(distribution.SplitVersion(n.Kubelet).Distribution)
	return row, ok && row.Supervised && row.Updates
}

// isSupervised leaves a node to the updater supervisor.
func isSupervised(q Question) bool {
	_, ok := supervised(q.Node)
	return ok
}

// supervisorUpdater replaces the one program of a k3s or RKE2 node: kubelet, its
// configuration and the control plane change together. A restart of the unit keeps
// containers. A kubelet of another minor version may start them anew, so its node is drained.
func supervisorUpdater() Updater {
	return Updater{Name: "supervisor", Claim: func(q Question) Claim {
		mine := q.ChangesBelow(PrefixKubernetes)
		row, ok := supervised(q.Node)
		if len(mine) == 0 || !ok {
			return Claim{}
		}
		if c := ofAnother(q, mine); c != nil {
			return *c
		}
		if store := q.Node.Current[model.FieldDatastore]; q.Node.ControlPlane && store != model.DatastoreEtcd {
			return refuseChanges(mine, "refit saves a snapshot of etcd before it updates a server, and this one has no embedded etcd",
				"update its servers with the distribution's own tool, or move the datastore to embedded etcd; wait if the agent has just started")
		}
		s := model.Step{ID: "supervisor", Verb: "swap", From: q.Node.Kubelet, To: mine[0].To, Disruption: model.DisruptionRestart, Changes: mine, DeadlineSeconds: deadlineSupervisor}
		if minorsBetween(s.From, s.To) > 0 {
			s.Disruption = model.DisruptionDrain
			if q.Node.ControlPlane {
				s.NotReversible = "an older API server may not read the objects that the new one stored; restore the snapshot of etcd with the command of " + row.Title + " to roll it back"
			}
		}
		return Claim{Steps: []model.Step{s}, Blockers: missingPayloads(q, row.Name)}
	}}
}
