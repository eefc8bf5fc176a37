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
	return blockers, warnings
}
