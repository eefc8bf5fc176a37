package pin

import (
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// nodePayloads are the files of a bundle that every node keeps for its updaters,
// and the manifests and the stream of boot images, which the controller reads from
// any of them.
var nodePayloads = append([]string{bundle.PayloadKubeadm, bundle.PayloadKubectl, bundle.PayloadKubelet, bundle.PayloadRefitAgent, bundle.PayloadCNIPlugins, bundle.PayloadResources, bundle.PayloadBootImages, distribution.K3s, distribution.RKE2, distribution.K0s}, bundle.Programs()...)

// Needs is what of a node decides which parts of a bundle it holds.
type Needs struct {
	// Platform of the node, for example linux/amd64.
	Platform string
	// ControlPlane adds the images of the group control-plane: only nodes that run a control
	// plane start them.
	ControlPlane bool
}

// image reports whether a node holds an image. Groups with other names are for all nodes.
func (n Needs) image(img *bundle.Image) bool {
	return n.ControlPlane || img.Group != bundle.GroupControlPlane
}

// FromBundle is everything of a bundle that a node must hold before anything starts.
func FromBundle(h *bundle.Header, n Needs) model.PinSet {
	var l model.PinSet
	for i := range h.Metadata.Images {
		if img := &h.Metadata.Images[i]; n.image(img) {
			l.Images = append(l.Images, model.PinSetImage{Name: img.Name, Digest: img.Digest, Bundle: h.Digest})
		}
	}
	for _, name := range nodePayloads {
		if p := h.PayloadByName(name, n.Platform); p != nil {
			l.Payloads = append(l.Payloads, model.PinSetPayload{Name: p.Name, Digest: p.Digest, Bundle: h.Digest})
		}
	}
	last := ""
	for _, p := range h.Metadata.Payloads { // sorted by name
		if !strings.HasPrefix(p.Name, bundle.PrefixFile) || p.Name == last {
			continue
		}
		last = p.Name
		if p := h.PayloadByName(p.Name, n.Platform); p != nil {
			l.Payloads = append(l.Payloads, model.PinSetPayload{Name: p.Name, Digest: p.Digest, Bundle: h.Digest})
		}
	}
	return l
}

// Covers reports whether a pin set has everything of a bundle that a node needs, from
// whichever bundle an image of the same name and digest comes.
func Covers(list model.PinSet, h *bundle.Header, n Needs) bool {
	type key struct{ name, digest string }
	have := map[key]bool{}
	for _, i := range list.Images {
		have[key{i.Name, i.Digest}] = true
	}
	payloads := map[key]bool{}
	for _, p := range list.Payloads {
		payloads[key{p.Name, p.Digest}] = true
	}
	want := FromBundle(h, n)
	for _, i := range want.Images {
		if !have[key{i.Name, i.Digest}] {
			return false
		}
	}
	for _, p := range want.Payloads {
		if !payloads[key{p.Name, p.Digest}] {
			return false
		}
	}
	return true
}
