package gate

import (
	"fmt"
	"sort"

	"github.com/refit-dev/refit/internal/model"
)

// Reason words; the catalogue of the API has the same.
const (
	reasonBundleNotApproved  = "BundleNotApproved"
	reasonPlanChanged        = "PlanChanged"
	reasonAnotherUpdate      = "AnotherUpdateRunning"
	reasonInsufficientSpace  = "InsufficientSpace"
	reasonPortInUse          = "PortInUse"
	reasonAgentMissing       = "AgentMissing"
	reasonAgentHeartbeatLost = "AgentHeartbeatLost"
	reasonNodeNotReady       = "NodeNotReady"
	reasonUnhealthy          = "ControlPlaneUnhealthy"
	reasonImagesMissing      = "ImagesMissing"
	reasonLoading            = "Loading"
	reasonPayloadMissing     = "PayloadMissing"
)

type verdicts = []model.Verdict

func bundleApproved(in *Input) (verdicts, verdicts) {
	switch {
	case in.Approved:
		return nil, nil
	case in.Approval != nil:
		return verdicts{*in.Approval}, nil
	}
	return verdicts{{
		Reason:  reasonBundleNotApproved,
		Message: "nobody approved bundle " + in.Bundle,
		Fix:     "put its digest into spec.digest of a Bundle, or trust its key in a TrustPolicy",
	}}, nil
}

func planned(in *Input) (verdicts, verdicts) { return in.PlanVerdicts, in.PlanWarnings }

func planUnchanged(in *Input) (verdicts, verdicts) {
	if in.ApprovedPlan == "" || in.ApprovedPlan == in.PlanDigest {
		return nil, nil
	}
	return verdicts{{
		Reason:  reasonPlanChanged,
		Message: fmt.Sprintf("plan %s was approved, but the plan is now %s", in.ApprovedPlan, in.PlanDigest),
		Fix:     "look at it with `refit plan` and approve it again",
	}}, nil
}

func noOtherUpdate(in *Input) (verdicts, verdicts) {
	if in.Running == "" {
		return in.answers.no["no-other-update"], in.answers.warn["no-other-update"]
	}
	return verdicts{{
		Reason:  reasonAnotherUpdate,
		Message: "ClusterUpdate " + in.Running + " has started and is not done",
		Fix:     "wait for it; one that is halted is tried again by `refit retry`, or deleted",
		Object:  "ClusterUpdate/" + in.Running,
		Waiting: true,
	}}, nil
}

// atWork: a node ends what it has begun, also if the update is deleted meanwhile, and so
// moves under a plan that was made before. One whose agent is not heard does nothing.
func atWork(m *moment, n *Node) (no, warn verdicts) {
	if n.Busy == "" {
		return nil, nil
	}
	silent := n.Heartbeat.Add(SilentAfter(n.HeartbeatSeconds))
	m.next(silent)
	v := about(model.Verdict{Reason: reasonAnotherUpdate, Waiting: true, Message: "node " + n.Name + " is still at work for " + n.Busy,
		Fix: "wait: it ends what it has begun, and is given back when it is Ready; else repair the node, or remove it from the cluster"}, n)
	if n.AgentKnown && !m.now.After(silent) {
		return verdicts{v}, nil
	}
	return nil, verdicts{v}
}

func about(v model.Verdict, n *Node) model.Verdict {
	v.Object = "Node/" + n.Name
	return v
}

func agents(m *moment, n *Node) *model.Verdict {
	m.next(n.Heartbeat.Add(SilentAfter(n.HeartbeatSeconds)))
	switch {
	case !n.AgentKnown:
		return &model.Verdict{Reason: reasonAgentMissing, Message: "node " + n.Name + " has no refit agent",
			Fix: "on the node: refit-agent install --from FILE|DEVICE, or `refit install --ssh`"}
	case m.now.Sub(n.Heartbeat) > SilentAfter(n.HeartbeatSeconds):
		return &model.Verdict{Reason: reasonAgentHeartbeatLost, Message: "the agent of node " + n.Name + " has not been heard for over three minutes",
			Fix: "on the node: systemctl status refit-agent"}
	}
	return nil
}

func nodesReady(_ *moment, n *Node) *model.Verdict {
	if n.Ready {
		return nil
	}
	return &model.Verdict{Reason: reasonNodeNotReady, Message: "node " + n.Name + " is not Ready", Fix: "repair the node, or remove it from the cluster"}
}

// controlPlane asks for every control-plane node, in the plan or not: an etcd
// that has lost a member may not lose another.
func controlPlane(in *Input) (verdicts, verdicts) {
	all, ready := in.answers.controlPlanes, in.answers.ready
	if ready == all {
		return nil, nil
	}
	return verdicts{{
		Reason:  reasonUnhealthy,
		Message: fmt.Sprintf("%d of %d control-plane nodes are Ready, all are needed", ready, all),
		Fix:     "repair the control plane first",
	}}, nil
}

func imagesReady(_ *moment, n *Node) *model.Verdict {
	switch {
	case !n.AgentKnown:
		return nil // said by agents
	case n.Stalled != nil && n.Stalled.Reason == reasonPortInUse:
		return n.Stalled // it has nothing for nodes that lose what they hold
	case n.HoldsBundle && holdsAll(n):
		return lacks(n)
	case !n.HoldsBundle:
		return loading("node " + n.Name + " was not told yet which images of the bundle to hold")
	case n.Stalled != nil:
		return stalledLoad(n)
	case n.Holding == nil || n.Holding.Content != n.WantHold:
		return loading("node " + n.Name + " has not begun to load the images")
	}
	return &model.Verdict{Reason: reasonImagesMissing, Waiting: true,
		Message: fmt.Sprintf("node %s does not hold and pin all of its %d images yet", n.Name, n.WantImages)}
}

// stalledLoad is why a node does not load; a lack of room is said by space, in bytes.
func stalledLoad(n *Node) *model.Verdict {
	if n.Stalled.Reason == reasonInsufficientSpace && len(nodeSpace(n)) > 0 {
		return nil
	}
	return n.Stalled
}

// lacks: the bundle is complete on the node, and is not all that the release needs.
func lacks(n *Node) *model.Verdict {
	if n.Holding == nil || len(n.Holding.Lacking) == 0 {
		return nil
	}
	v := model.LacksImages(n.Name, n.Holding.Lacking)
	return &v
}

func holdsAll(n *Node) bool {
	h := n.Holding
	if n.WantHold == "" {
		return true // nobody wants it to hold anything
	}
	return h != nil && h.Content == n.WantHold && int(h.ImagesReady) >= n.WantImages && int(h.ImagesPinned) >= n.WantImages
}

func loading(message string) *model.Verdict {
	return &model.Verdict{Reason: reasonLoading, Waiting: true, Message: message}
}

func payloadsReady(_ *moment, n *Node) *model.Verdict {
	h := n.Holding
	if !n.AgentKnown || !n.HoldsBundle || h == nil || h.Content != n.WantHold || int(h.PayloadsHeld) >= n.WantPayloads {
		return nil
	}
	return &model.Verdict{Reason: reasonPayloadMissing, Waiting: true,
		Message: fmt.Sprintf("node %s does not have all of its %d payloads yet", n.Name, n.WantPayloads)}
}

// space adds up what is needed on each file system: two places on one file
// system share its room.
func space(_ *moment, n *Node) (no, warn verdicts) {
	if n.InPlan {
		return nodeSpace(n), nil
	}
	return nil, nodeSpace(n)
}

// stateFS is refit's own directory on a node, which takes snapshots of etcd.
const stateFS = "state"

func nodeSpace(n *Node) verdicts {
	if n.Holding == nil || n.Holding.Content != n.WantHold {
		return nil
	}
	type room struct {
		names, snapshot string
		free, needed    int64
	}
	rooms := map[string]*room{}
	var ids []string
	for _, fs := range n.FileSystems {
		r := rooms[fs.ID]
		if r == nil {
			r = &room{free: fs.Free}
			rooms[fs.ID] = r
			ids = append(ids, fs.ID)
		}
		if r.names != "" {
			r.names += " and "
		}
		r.names += fs.Name
		r.needed += n.Holding.Needed[fs.Name]
		if fs.Name == stateFS && n.Snapshot > 0 {
			r.needed += n.Snapshot
			r.snapshot = fmt.Sprintf(", %d of them for a snapshot of etcd", n.Snapshot)
		}
	}
	sort.Strings(ids)
	var out verdicts
	for _, id := range ids {
		if r := rooms[id]; r.needed > r.free {
			out = append(out, model.Verdict{Reason: reasonInsufficientSpace, Object: "Node/" + n.Name,
				Message: fmt.Sprintf("node %s needs %d bytes%s, %d are free (file system of %s)", n.Name, r.needed, r.snapshot, r.free, r.names),
				Fix:     fmt.Sprintf("free %d bytes on that file system, or make it larger", r.needed-r.free)})
		}
	}
	return out
}
