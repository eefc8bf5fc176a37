package update

import (
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// prefixOS is of the paths of a node's OS: its image by digest, and refit's own kernel
// arguments. The agent says beside them how the OS is moved, and why it cannot be.
const (
	prefixOS          = "os/"
	pathOSDriver      = "os/driver"
	pathOSUnsupported = "os/unsupported"
)

// deadlineOS is for fetching, staging, a restart of the machine and its coming up, in
// seconds.
const deadlineOS = 3600

// osImageUpdater boots a node into an image. It comes last: what other updaters wrote
// is there when the machine restarts, and is taken back after it has gone back.
func osImageUpdater() Updater {
	return Updater{Name: "os-image", Claim: func(q Question) Claim {
		out := configured(q, "os-image", q.Of(prefixOS), deadlineOS)
		for i := range out.Steps {
			if q.Current[pathOSDriver] == "sysext" { // it is laid over /usr, and the machine goes on
				out.Steps[i].Disruption = model.DisruptionDrain
			}
		}
		return out
	}}
}

// withoutOS leaves out what is wanted of an OS that cannot be moved, and says so: the
// rest of the node is updated all the same (R2.115).
func withoutOS(n Node, want Fields) []model.Verdict {
	why := n.Current[pathOSUnsupported]
	if why == "" {
		return nil
	}
	wanted := false
	for path := range want {
		if strings.HasPrefix(path, prefixOS) {
			delete(want, path)
			wanted = true
		}
	}
	if !wanted {
		return nil
	}
	return []model.Verdict{{Reason: reasonOSUnsupported, Object: "Node/" + n.Name, Message: "the OS of node " + n.Name + " stays as it is: " + why,
		Fix: "put the node into a pool without an OSImage and kernel arguments, or install it from an image"}}
}

// restartsForOS reports whether a step restarts the machine after all files were
// written.
func restartsForOS(s model.Step) bool {
	return s.Updater == "os-image" && s.Disruption == model.DisruptionReboot
}
