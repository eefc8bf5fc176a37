package gate

import "github.com/refit-dev/refit/internal/model"

// Kinds of drift that close the gate; other kinds are warnings.
const (
	DriftFiles    = "Files"             // files and units are not as refit made them
	DriftOverlay  = "UsrOverlay"        // /usr is writable, or an overlay hides it
	DriftPackages = "LayeredPackages"   // packages were added to the image on the node
	DriftForeign  = "ForeignDeployment" // another deployment than refit's is booted or staged
	DriftLeft     = "Left"              // an administrator rolled the node back from the desired image
	DriftFailed   = "Failed"            // the node rolled itself back from the desired image
)

// Drift is one thing that is not as refit made it.
type Drift struct {
	Kind, Detail string
	// RepairedByUpdate by the update itself, by the pool's policy.
	RepairedByUpdate bool
}

const reasonDrifted = "Drifted"

// driftFixes says by kind how a person puts it right, for drift that closes the gate.
var driftFixes = map[string]string{
	DriftFiles:    "put it back, or take the change into a NodeConfig; `refit accept drift` has the update write over it",
	DriftOverlay:  "restart the node: an overlay does not outlive that",
	DriftPackages: "`rpm-ostree reset` on the node and restart it, or take the packages into the OSImage",
	DriftForeign:  "boot the node into refit's deployment again (`bootc rollback`, `rpm-ostree rollback`), or `refit accept drift` to have the update replace it",
	DriftFailed:   "give the pool an image that comes up on this node; or fix the cause and `refit accept drift` to boot the same one again",
	DriftLeft:     "give the pool an image that is good on this node; or `refit accept drift` to boot the same one again",
}

// nodeDrift reports changes on nodes of the plan that refit did not make: an update would
// overwrite them, or fail on them.
func nodeDrift(_ *moment, n *Node) (no, warn blockers) {
	for _, d := range n.Drift {
		fix, closes := driftFixes[d.Kind]
		v := withNode(model.Blocker{Reason: reasonDrifted, Message: "node " + n.Name + ": " + d.Detail, Fix: fix}, n)
		switch {
		case n.InPlan && closes && !d.RepairedByUpdate:
			no = append(no, v)
		case n.InPlan:
			warn = append(warn, v)
		}
	}
	return no, warn
}
