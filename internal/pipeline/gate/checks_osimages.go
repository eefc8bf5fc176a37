package gate

import (
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

// OSImage is the image that nodes of a pool boot by the plan.
type OSImage struct {
	// Pool by name, Image as repository@digest.
	Pool, Image string
	// Nodes of the plan that boot it, and how many of them hold it already.
	Nodes, Ready int
	// Reason and Message say why not all do. A Reason is one of ImagesMissing,
	// OSImageAbsent, OSImageNotFetched, RegistryUnauthorized, RegistryUnreachable.
	Reason, Message string
}

// Reason words of images that are not held.
const (
	reasonOSImageAbsent        = "OSImageAbsent"
	reasonRegistryUnauthorized = "RegistryUnauthorized"
	reasonRegistryUnreachable  = "RegistryUnreachable"

	reasonOSImageNotFetched = "OSImageNotFetched"
)

// osImageFixes of an image that is not held.
var osImageFixes = map[string]string{
	reasonOSImageAbsent:        "push it again or build it anew (kubectl annotate osimage NAME refit.dev/rebuild=1), or bring it in a bundle",
	reasonRegistryUnauthorized: "name in spec.pullSecret of the OSImage a Secret of refit-builds that may read it, or bring the image in a bundle",
	reasonOSImageNotFetched:    "let the nodes' container runtimes reach the registry, or bring the image in a bundle; without that the node's OS fetches it in its turn",
	reasonRegistryUnreachable:  "repair the registry, or bring the image in a bundle: refit bundle create --os-image",
}

// osImagesReady: what a node boots is on the node before it is drained.
func osImagesReady(in *Input) (no, warn blockers) {
	for _, o := range in.OSImages {
		if o.Ready >= o.Nodes {
			continue
		}
		v := model.Blocker{Reason: o.Reason, Object: "UpdatePool/" + o.Pool, Fix: osImageFixes[o.Reason], Waiting: o.Reason == reasonImagesMissing || o.Reason == reasonRegistryUnreachable,
			Message: fmt.Sprintf("OS image %s is held by %d of %d nodes of pool %s: %s", o.Image, o.Ready, o.Nodes, o.Pool, o.Message)}
		if v.Reason == "" {
			v.Reason, v.Waiting = reasonImagesMissing, true
		}
		if o.Reason == reasonOSImageNotFetched { // its OS fetches it, if the registry is still there then
			warn = append(warn, v)
			continue
		}
		no = append(no, v)
	}
	return no, warn
}

// kernelArguments: a node that does not start for an argument cannot take it back.
func kernelArguments(in *Input) (no, warn blockers) {
	for _, a := range in.Arguments {
		no = append(no, model.Blocker{Reason: reasonDangerousArguments, Object: "UpdatePool/" + a.Pool,
			Message: fmt.Sprintf("nodes of pool %s get the kernel argument %s: %s", a.Pool, a.Argument, a.Why),
			Fix:     "take it out of the NodeConfig; if it is meant, try it on one machine, then `refit accept kernel-arguments --reason TEXT --until DURATION`"})
	}
	return no, nil
}
