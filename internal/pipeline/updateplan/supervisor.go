package updateplan

import (
	"fmt"
	"strconv"

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

// supervisorUpdater replaces the one program of a k3s, RKE2 or k0s node: kubelet, its
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
		store := q.Node.Current[model.FieldDatastore]
		if c := otherDatastore(q, mine, row, store); c != nil {
			return *c
		}
		s := model.Step{ID: "supervisor", Verb: "swap", From: q.Node.Kubelet, To: mine[0].To, Disruption: model.DisruptionRestart, Changes: mine, DeadlineSeconds: deadlineSupervisor}
		if minorsBetween(s.From, s.To) > 0 {
			s.Disruption = model.DisruptionDrain
			if q.Node.ControlPlane && store == model.DatastoreEtcd {
				s.NotReversible = "an older API server may not read the objects that the new one stored; restore the snapshot of etcd with the command of " + row.Title + " to roll it back"
			}
		}
		return Claim{Steps: []model.Step{s}, Blockers: missingPayloads(q, row.Name)}
	}}
}

// otherDatastore refuses a server of whose datastore refit saves no snapshot, nil if it does.
func otherDatastore(q Question, mine []model.Change, row distribution.Row, store string) *Claim {
	var c Claim
	switch {
	case !q.Node.ControlPlane || store == model.DatastoreEtcd:
		return nil
	case store == model.DatastoreSQLite && q.Input != nil && controlPlanes(q.Input) == 1:
		return nil
	case store == model.DatastoreSQLite:
		c = refuseChanges(mine, "its datastore is a file of SQLite, which one server alone can use, and the cluster has several",
			"remove the servers that are none, or the file "+row.SQLite+" that an earlier datastore left")
	default:
		c = refuseChanges(mine, "refit saves a snapshot before it updates a server, and this one has neither embedded etcd nor SQLite",
			"update its servers with the distribution's own tool, or move the datastore to embedded etcd; wait if the agent has just started")
	}
	return &c
}

// checkServers refuses a cluster of which some servers are no nodes: refit updates nodes only,
// and the kubelets of the others would be newer than an API server.
func (p *planner) checkServers() {
	row, _ := distribution.ByName(distribution.SplitVersion(p.in.Target.Kubernetes).Distribution)
	if !row.WorkersOnly || len(p.out.Plan.Nodes) == 0 {
		return
	}
	nodes, most := controlPlanes(p.in), 0
	for i := range p.in.Nodes {
		if n, err := strconv.Atoi(p.in.Nodes[i].Current[model.FieldServers]); err == nil {
			most = max(most, n)
		}
	}
	b := model.Blocker{Reason: reasonNoUpdater,
		Fix: "update this cluster with the tool of " + row.Title + ", or make its controllers nodes: start them with --enable-worker"}
	switch {
	case nodes == 0:
		b.Message = "no controller of " + row.Title + " is a node: refit updates nodes only, and workers must not be newer than their API server"
	case most > nodes:
		b.Message = fmt.Sprintf("%s has %d controllers, and %d of them are nodes: refit updates nodes only, and workers must not be newer than any API server", row.Title, most, nodes)
	default:
		return
	}
	p.out.Blockers = append(p.out.Blockers, b)
}

// datastoreNotes says of a server with SQLite what its move, and an undo, mean.
func (p *planner) datastoreNotes() {
	sqlite := map[string]bool{}
	for _, n := range p.in.Nodes {
		sqlite[n.Name] = n.Current[model.FieldDatastore] == model.DatastoreSQLite
	}
	nodes := p.out.Plan.Nodes
	for i := range nodes {
		for _, s := range nodes[i].Steps {
			if s.Updater != "supervisor" || !sqlite[nodes[i].Node] {
				continue
			}
			note := "the API server is unavailable while refit copies the database of SQLite, and until the new program has started; workloads go on"
			if minorsBetween(s.From, s.To) > 0 {
				note += ". An undo restores this copy: objects that changed after it was made are lost"
			}
			nodes[i].Notes = append(nodes[i].Notes, note)
		}
	}
}
