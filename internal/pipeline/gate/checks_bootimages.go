package gate

import (
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

const reasonBootImageTooOld = "BootImageTooOld"

// BootImage is a source of machines whose boot image is too old for the target.
type BootImage struct {
	// Source is the name of the MachineSource.
	Source string
	// Message says why, and what to do.
	Message string
	// Blocks is true for a move to another minor version: a patch is never kept
	// back, because it makes new machines no worse off.
	Blocks bool
}

// BootImageGap is why rules about boot images are not checked: a policy that was not evaluated
// yet, or a source whose policy was deleted.
type BootImageGap struct {
	Object, Reason, Message, Fix string
	// Blocks is true for a move to another minor version.
	Blocks bool
}

// bootImages: a machine that is made after the update must be able to join.
func bootImages(in *Input) (blockers, warnings []model.Blocker) {
	for _, b := range in.BootImages {
		v := model.Blocker{Reason: reasonBootImageTooOld, Object: "MachineSource/" + b.Source,
			Message: fmt.Sprintf("new machines may not join after the update: %s", b.Message),
			Fix:     "refit bootimage check --target " + in.TargetKubernetes + " lists all; waive the rule in the BootImagePolicy with a reason and an end, or accept `boot-images`"}
		if b.Blocks {
			blockers = append(blockers, v)
		} else {
			warnings = append(warnings, v)
		}
	}
	for _, g := range in.BootImageGaps {
		v := model.Blocker{Reason: g.Reason, Object: g.Object, Message: g.Message, Fix: g.Fix}
		if g.Blocks {
			blockers = append(blockers, v)
		} else {
			warnings = append(warnings, v)
		}
	}
	return blockers, warnings
}
