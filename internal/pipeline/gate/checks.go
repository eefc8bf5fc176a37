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
	reasonDangerousArguments = "DangerousKernelArguments"
)

type blockers = []model.Blocker

func bundleApproved(in *Input) (blockers, blockers) {
	switch {
	case in.Approved:
		return nil, nil
	case in.Approval != nil:
		return blockers{*in.Approval}, nil
	}
	return blockers{{
		Reason:  reasonBundleNotApproved,
		Message: "no Bundle or TrustPolicy approves bundle " + in.Bundle,
		Fix:     "put its digest into spec.digest of a Bundle, or trust its key in a TrustPolicy",
	}}, nil
}

func planComplete(in *Input) (blockers, blockers) { return in.PlanBlockers, in.PlanWarnings }

func planUnchanged(in *Input) (blockers, blockers) {
	if in.ApprovedPlan == "" || in.ApprovedPlan == in.PlanDigest {
		return nil, nil
	}
	return blockers{{
		Reason:  reasonPlanChanged,
		Message: fmt.Sprintf("plan %s was approved, but the plan is now %s", in.ApprovedPlan, in.PlanDigest),
		Fix:     "check it with `refit plan` and approve it again",
	}}, nil
}

func noOtherUpdate(in *Input) (blockers, blockers) {
	if in.Running == "" {
		return in.answers.no["no-other-update"], in.answers.warn["no-other-update"]
	}
	return blockers{{
		Reason:  reasonAnotherUpdate,
		Message: "ClusterUpdate " + in.Running + " has started and is not done",
		Fix:     "wait for it; one that is halted is tried again by `refit retry`, or deleted",
		Object:  "ClusterUpdate/" + in.Running,
		Waiting: true,
	}}, nil
}

// atWork: a node finishes a run that it started, even if the update is deleted meanwhile,
// and so changes under a plan that was made before. A node whose agent is silent does
// nothing.
func atWork(m *moment, n *Node) (no, warn blockers) {
	if n.Busy == "" {
		return nil, nil
	}
	silent := n.Heartbeat.Add(SilentAfter(n.HeartbeatSeconds))
	m.changesAt(silent)
	v := withNode(model.Blocker{Reason: reasonAnotherUpdate, Waiting: true, Message: "node " + n.Name + " is still at work for " + n.Busy,
		Fix: "wait: the node finishes its run and is released when it is Ready; if it does not, repair the node or remove it from the cluster"}, n)
	if n.AgentKnown && !m.now.After(silent) {
		return blockers{v}, nil
	}
	return nil, blockers{v}
}

func withNode(v model.Blocker, n *Node) model.Blocker {
	v.Object = "Node/" + n.Name
	return v
}

func agentHeard(m *moment, n *Node) *model.Blocker {
	m.changesAt(n.Heartbeat.Add(SilentAfter(n.HeartbeatSeconds)))
	switch {
	case !n.AgentKnown:
		return &model.Blocker{Reason: reasonAgentMissing, Message: "node " + n.Name + " has no refit agent",
			Fix: "on the node: refit-agent install --from FILE|DEVICE, or `refit install --ssh`"}
	case m.now.Sub(n.Heartbeat) > SilentAfter(n.HeartbeatSeconds):
		return &model.Blocker{Reason: reasonAgentHeartbeatLost, Message: "the agent of node " + n.Name + " has not been heard for over three minutes",
			Fix: "on the node: systemctl status refit-agent"}
	}
	return nil
}

func nodesReady(_ *moment, n *Node) *model.Blocker {
	if n.Ready {
		return nil
	}
	return &model.Blocker{Reason: reasonNodeNotReady, Message: "node " + n.Name + " is not Ready", Fix: "repair the node, or remove it from the cluster"}
}

// controlPlane asks for every control-plane node, in the plan or not: an etcd
// that has lost a member may not lose another.
func controlPlane(in *Input) (blockers, blockers) {
	all, ready := in.answers.controlPlanes, in.answers.ready
	if ready == all {
		return nil, nil
	}
	return blockers{{
		Reason:  reasonUnhealthy,
		Message: fmt.Sprintf("%d of %d control-plane nodes are Ready, all are needed", ready, all),
		Fix:     "repair the control plane first",
	}}, nil
}

func imagesReady(_ *moment, n *Node) *model.Blocker {
	switch {
	case !n.AgentKnown:
		return nil // said by agents
	case n.Stalled != nil && n.Stalled.Reason == reasonPortInUse:
		return n.Stalled // it has nothing for nodes that lose what they hold
	case n.PinSetHasBundle && hasAllImages(n):
		return missingImages(n)
	case !n.PinSetHasBundle:
		return stillLoading("node " + n.Name + " has not received the pin set with the bundle's images yet")
	case n.Stalled != nil:
		return stalledLoad(n)
	case n.Loaded == nil || n.Loaded.Content != n.WantPinSet:
		return stillLoading("node " + n.Name + " has not started to load the images")
	}
	return &model.Blocker{Reason: reasonImagesMissing, Waiting: true,
		Message: fmt.Sprintf("node %s does not hold and pin all of its %d images yet", n.Name, n.WantImages)}
}

// stalledLoad is why a node does not load. The check "space" reports missing disk space,
// in bytes.
func stalledLoad(n *Node) *model.Blocker {
	if n.Stalled.Reason == reasonInsufficientSpace && len(nodeSpace(n)) > 0 {
		return nil
	}
	return n.Stalled
}

// missingImages: the bundle is complete on the node, and is not all that the release needs.
func missingImages(n *Node) *model.Blocker {
	if n.Loaded == nil || len(n.Loaded.MissingImages) == 0 {
		return nil
	}
	v := model.ReleaseImagesMissing(n.Name, n.Loaded.MissingImages)
	return &v
}

func hasAllImages(n *Node) bool {
	h := n.Loaded
	if n.WantPinSet == "" {
		return true // it has no pin set
	}
	return h != nil && h.Content == n.WantPinSet && int(h.ImagesReady) >= n.WantImages && int(h.ImagesPinned) >= n.WantImages
}

func stillLoading(message string) *model.Blocker {
	return &model.Blocker{Reason: reasonLoading, Waiting: true, Message: message}
}

func payloadsReady(_ *moment, n *Node) *model.Blocker {
	h := n.Loaded
	if !n.AgentKnown || !n.PinSetHasBundle || h == nil || h.Content != n.WantPinSet || int(h.PayloadsReady) >= n.WantPayloads {
		return nil
	}
	return &model.Blocker{Reason: reasonPayloadMissing, Waiting: true,
		Message: fmt.Sprintf("node %s does not have all of its %d payloads yet", n.Name, n.WantPayloads)}
}

// space adds up what is needed on each file system: two places on one file
// system share its room.
func space(_ *moment, n *Node) (no, warn blockers) {
	if n.InPlan {
		return nodeSpace(n), nil
	}
	return nil, nodeSpace(n)
}

// stateFS is refit's own directory on a node, which takes snapshots of etcd.
const stateFS = "state"

func nodeSpace(n *Node) blockers {
	if n.Loaded == nil || n.Loaded.Content != n.WantPinSet {
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
		r.needed += n.Loaded.Needed[fs.Name]
		if fs.Name == stateFS && n.Snapshot > 0 {
			r.needed += n.Snapshot
			r.snapshot = fmt.Sprintf(", %d of them for a snapshot of etcd", n.Snapshot)
		}
	}
	sort.Strings(ids)
	var out blockers
	for _, id := range ids {
		if r := rooms[id]; r.needed > r.free {
			out = append(out, model.Blocker{Reason: reasonInsufficientSpace, Object: "Node/" + n.Name,
				Message: fmt.Sprintf("node %s needs %d bytes%s, %d are free (file system of %s)", n.Name, r.needed, r.snapshot, r.free, r.names),
				Fix:     fmt.Sprintf("free %d bytes on that file system, or make it larger", r.needed-r.free)})
		}
	}
	return out
}
