package auditfacts

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

const (
	// maxImages and maxNames are a kubelet's default limits of the image list.
	maxImages = 50
	maxNames  = 5
	// listAge is the maximum age of a reported list, in seconds: the kubelet lists images
	// every 30 s and reports within 10 s.
	listAge = 40
)

const labelControlPlane = "node-role.kubernetes.io/control-plane"

// nodeFacts is a node with the time of its image list.
type nodeFacts struct {
	model.ImageNode
	// asOf is in Unix seconds, 0 if unknown.
	asOf int64
}

// readNode converts a Node object, with the kubelet's own configuration if available.
func readNode(n *corev1.Node, k *Kubelet) nodeFacts {
	out := nodeFacts{ImageNode: model.ImageNode{Name: n.Name, Kubelet: n.Status.NodeInfo.KubeletVersion, OS: n.Status.NodeInfo.OSImage,
		Kernel: n.Status.NodeInfo.KernelVersion, Arch: n.Status.NodeInfo.Architecture, Labels: n.Labels, Role: model.RoleWorker}}
	out.Runtime, _, _ = strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://")
	if _, ok := n.Labels[labelControlPlane]; ok {
		out.Role = model.RoleControlPlane
	}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			out.Takes = c.Status == corev1.ConditionTrue && !n.Spec.Unschedulable
			if !c.LastHeartbeatTime.IsZero() {
				out.asOf = c.LastHeartbeatTime.Unix() - listAge
			}
		case corev1.NodeDiskPressure:
			out.Pressure = c.Status == corev1.ConditionTrue
		}
	}
	out.Taints = taints(n)
	limit := maxImages
	if k != nil {
		out.Verification, out.Allowed = k.Verification, k.Allowed
		if k.MaxImages != nil {
			limit = *k.MaxImages
		}
	}
	addImages(&out.ImageNode, n.Status.Images, limit)
	return out
}

// taints returns the taints that repel pods, without the cordon's, which is in Takes.
func taints(n *corev1.Node) []model.Taint {
	var out []model.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable {
			out = append(out, model.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
		}
	}
	return out
}

// addImages converts a node's image list. It is complete only if neither images nor names reach
// their limit.
func addImages(n *model.ImageNode, list []corev1.ContainerImage, limit int) {
	var pauses []string
	n.Complete = len(list) > 0 && (limit < 0 || len(list) < limit)
	for _, i := range list {
		c := model.CachedImage{}
		for _, name := range i.Names {
			if r, err := imagetag.ParseRef(name); err == nil && !isID(name) {
				c.Names = append(c.Names, r.String())
			}
		}
		n.Complete = n.Complete && len(i.Names) < maxNames
		n.Images = append(n.Images, c)
		pauses = append(pauses, slices.DeleteFunc(slices.Clone(c.Names), func(s string) bool { return !isPause(s) })...)
	}
	if len(pauses) == 1 { // of several, the list does not tell which one the runtime uses
		n.Sandbox = pauses[0]
	}
}

// isID reports whether a name is an image ID: a runtime names an untagged image by the digest
// of its configuration, which is no repository called sha256.
func isID(name string) bool { return strings.HasPrefix(name, "sha256:") }

// isPause reports whether a name is a sandbox image by its usual repository and tag.
func isPause(name string) bool {
	if !strings.Contains(name, "pause:") {
		return false
	}
	r, err := imagetag.ParseRef(name)
	return err == nil && r.Tag != "" && path.Base(r.Repository) == "pause"
}

// addAgentReport adds what the node's agent reports.
func (n *nodeFacts) addAgentReport(nu *v1alpha1.NodeUpdate, lists map[string]model.PinSet) {
	if nu == nil {
		return
	}
	if o := nu.Status.Observed; o != nil && o.Fields[model.FieldSandboxImage] != "" {
		if r, err := imagetag.ParseRef(o.Fields[model.FieldSandboxImage]); err == nil {
			n.Sandbox = r.String()
		}
	}
	if h := nu.Status.Health; h != nil && n.Verification == "" {
		n.Verification = h.PullVerification
	}
	if h := nu.Status.Pins; h != nil && h.Content == nu.Spec.Pins {
		n.addPinnedList(h, lists)
	}
}

// addPinnedList adds a pin list if the node has all of its images.
func (n *nodeFacts) addPinnedList(h *v1alpha1.PinStatus, lists map[string]model.PinSet) {
	list, ok := lists[h.Content]
	if bundled, fetched := list.CountImages(); ok && int(h.ImagesReady) >= bundled && int(h.FetchedReady) >= fetched {
		n.addPinned(list, int(h.ImagesPinned) >= bundled)
	}
}

// addPinned adds the images of a complete pin list. An incomplete one does not tell which of
// its images exist.
func (n *nodeFacts) addPinned(list model.PinSet, pinned bool) {
	n.PinnedKnown = pinned
	for _, img := range list.Images {
		r, err := imagetag.ParseRef(img.Name)
		if err != nil {
			continue
		}
		c := n.entry(r.String())
		if c == nil {
			n.Images = append(n.Images, model.CachedImage{Names: []string{r.String()}})
			c = &n.Images[len(n.Images)-1]
		}
		addName(c, r.Repository+"@"+img.Digest)
		c.Pinned = pinned
	}
}

func (n *nodeFacts) entry(name string) *model.CachedImage {
	for i := range n.Images {
		if slices.Contains(n.Images[i].Names, name) {
			return &n.Images[i]
		}
	}
	return nil
}

func addName(c *model.CachedImage, name string) {
	if !slices.Contains(c.Names, name) {
		c.Names = append(c.Names, name)
	}
}
