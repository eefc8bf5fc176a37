package gate

import (
	"cmp"
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
	// Findings about what is in the image, for the nodes that boot it.
	Findings []OSImageFinding
	// Reading: refit still reads what is in the image. Unread is why it cannot.
	Reading bool
	Unread  string
}

// OSImageFinding is one of the findings about an image.
type OSImageFinding struct {
	model.Blocker
	// Warning: it does not keep nodes from booting the image.
	Warning bool
}

// OSImagesBuilt is the name of the check for builds of OS images.
const OSImagesBuilt = "os-images-built"

// OSBuild is the image that a pool should have, and that refit cannot build.
type OSBuild struct {
	// Pool and OSImage by name; Build is the OSBuild that failed, empty if none was started.
	Pool, OSImage, Build string
	// Image is what the pool has meanwhile, empty for none; Message is why.
	Image, Message string
	// Reason word of the OSImage.
	Reason string
}

// Reason words of images that are not held.
const (
	reasonOSImageAbsent        = "OSImageAbsent"
	reasonRegistryUnauthorized = "RegistryUnauthorized"
	reasonRegistryUnreachable  = "RegistryUnreachable"

	reasonOSImageNotFetched = "OSImageNotFetched"
	reasonImageBuildFailed  = "ImageBuildFailed"
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

// osImagesBuilt: an update with a failed build would look complete, and its nodes would have the
// image before it. A build that cannot start yet is a warning: it was not tried.
func osImagesBuilt(in *Input) (no, warn blockers) {
	for _, b := range in.OSBuilds {
		stays := "they have no image of it yet"
		if b.Image != "" {
			stays = "they keep " + b.Image
		}
		v := model.Blocker{Reason: reasonImageBuildFailed, Object: "UpdatePool/" + b.Pool, Message: fmt.Sprintf("nodes of pool %s do not get the image of OSImage %s in this update, %s: %s", b.Pool, b.OSImage, stays, b.Message)}
		if b.Build == "" {
			v.Reason, v.Fix = cmp.Or(b.Reason, reasonImageBuildFailed), "kubectl describe osimage "+b.OSImage+" says what to correct"
			warn = append(warn, v)
			continue
		}
		v.Fix = fmt.Sprintf("Correct what the log names (kubectl describe osbuild %s). Or pin the pool to a good build: refit rollback --pool %s --to OSBUILD. Or `refit accept %s` to update its nodes with the image that they have", b.Build, b.Pool, OSImagesBuilt)
		no = append(no, v)
	}
	return no, warn
}

// osImagesFit: an image without what a node needs costs a drained node at least, and a visit at
// worst.
func osImagesFit(in *Input) (no, warn blockers) {
	for _, o := range in.OSImages {
		about := fmt.Sprintf("OS image %s of pool %s: ", o.Image, o.Pool)
		switch {
		case o.Reading:
			no = append(no, model.Blocker{Reason: reasonFactUnknown, Object: "UpdatePool/" + o.Pool, Waiting: true, Message: about + "refit reads what is in it"})
		case o.Unread != "":
			warn = append(warn, model.Blocker{Reason: reasonFactUnknown, Object: "UpdatePool/" + o.Pool, Message: about + "refit cannot read what is in it, so it is not checked: " + o.Unread,
				Fix: "check it where it is readable: refit image lint IMAGE, or of a bundle: refit image lint FILE"})
		}
		for _, f := range o.Findings {
			v := f.Blocker
			v.Object, v.Message = "UpdatePool/"+o.Pool, about+v.Message
			if f.Warning {
				warn = append(warn, v)
				continue
			}
			no = append(no, v)
		}
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
