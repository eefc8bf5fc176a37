package gate

import "github.com/refit-dev/refit/internal/model"

// Kinds of drift that the gate knows; others are told and close nothing.
const (
	DriftFiles    = "Files"             // files and units are not as refit made them
	DriftOverlay  = "UsrOverlay"        // /usr is writable, or something lies over it
	DriftPackages = "LayeredPackages"   // packages were added to the image on the node
	DriftForeign  = "ForeignDeployment" // another deployment than refit's is booted or staged
	DriftLeft     = "Left"              // the node was taken back by hand from what is wanted still
	DriftFailed   = "Failed"            // the node went back by itself from what is wanted still
)

// Drift is one thing that is not as refit made it.
type Drift struct {
	Kind, Detail string
	// Mended by the update itself, by the pool's policy.
	Mended bool
}

const reasonDrifted = "Drifted"

// mends says by kind how a person puts it right, for drift that closes the gate.
var mends = map[string]string{
	DriftFiles:    "put it back, or take the change into a NodeConfig; `refit accept drift` has the update write over it",
	DriftOverlay:  "restart the node: an overlay does not outlive that",
	DriftPackages: "`rpm-ostree reset` on the node and restart it, or take the packages into the OSImage",
	DriftForeign:  "boot the node into refit's deployment again (`bootc rollback`, `rpm-ostree rollback`), or `refit accept drift` to have the update replace it",
	DriftFailed:   "give the pool an image that comes up on this node; or mend the cause and `refit accept drift` to boot the same one again",
	DriftLeft:     "give the pool an image that is good on this node; or `refit accept drift` to boot the same one again",
}

// drift asks every node of the plan whether somebody changed it since refit made it:
// an update would write over it, or fail on it.
func drift(_ *moment, n *Node) (no, warn verdicts) {
	for _, d := range n.Drift {
		fix, closes := mends[d.Kind]
		v := about(model.Verdict{Reason: reasonDrifted, Message: "node " + n.Name + ": " + d.Detail, Fix: fix}, n)
		switch {
		case n.InPlan && closes && !d.Mended:
			no = append(no, v)
		case n.InPlan:
			warn = append(warn, v)
		}
	}
	return no, warn
}
