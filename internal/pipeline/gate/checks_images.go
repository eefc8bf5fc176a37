package gate

import (
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

const reasonMovingTag = "MovingTag"

// imageReferences: what a node needs and does not start without a registry closes the
// gate; a reference that may start another image is a warning.
func imageReferences(in *Input) (blockers, blockers) {
	var no, warn blockers
	for _, r := range in.Images {
		v := model.Blocker{Reason: reasonMovingTag, Object: r.Object, Fix: r.Fix,
			Message: fmt.Sprintf("%s, container %s, image %s: %s (lint rule %s)", r.Object, r.Container, r.Image, r.Message, r.Rule)}
		if r.Always {
			v.Reason = reasonImagePullAlways
			v.Fix += "; if a registry is always there, accept `image-references`"
			no = append(no, v)
			continue
		}
		warn = append(warn, v)
	}
	return no, warn
}
