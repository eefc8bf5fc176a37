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
	// maxImages and maxNames are what a kubelet reports of its images by default.
	maxImages = 50
	maxNames  = 5
	// listAge is how old a node's list may be when it is reported, in seconds: the
	// kubelet asks its runtime every thirty, and reports within ten.
	listAge = 40
)

const labelControlPlane = "node-role.kubernetes.io/control-plane"

// nodeFacts is a node with the moment its list of images is from.
type nodeFacts struct {
	model.ImageNode
	// asOf in seconds since 1970, 0 if unknown.
	asOf int64
}

// node is what a Node object says, with the kubelet's own words if there are any.
func node(n *corev1.Node, k *Kubelet) nodeFacts {
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
	images(&out.ImageNode, n.Status.Images, limit)
	return out
}

// taints that keep pods off; that of a cordon is Takes.
func taints(n *corev1.Node) []model.Taint {
	var out []model.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable {
			out = append(out, model.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
		}
	}
	return out
}

// images reads the list of a node. It is complete only if nothing was cut off:
// neither images, nor names of one.
func images(n *model.ImageNode, list []corev1.ContainerImage, limit int) {
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
	if len(pauses) == 1 { // of two nobody says here which one the runtime takes
		n.Sandbox = pauses[0]
	}
}

// isID: a runtime names an image that has no tag by its configuration, which is no
// repository called sha256.
func isID(name string) bool { return strings.HasPrefix(name, "sha256:") }

// isPause: a sandbox image by its usual name and tag.
func isPause(name string) bool {
	if !strings.Contains(name, "pause:") {
		return false
	}
	r, err := imagetag.ParseRef(name)
	return err == nil && r.Tag != "" && path.Base(r.Repository) == "pause"
}

// agent adds what the node's agent reports.
func (n *nodeFacts) agent(nu *v1alpha1.NodeUpdate, lists map[string]model.HoldList) {
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
		n.holding(h, lists)
	}
}

// holding believes a hold list once the node has all of it.
func (n *nodeFacts) holding(h *v1alpha1.PinStatus, lists map[string]model.HoldList) {
	list, ok := lists[h.Content]
	if bundled, fetched := list.Counts(); ok && int(h.ImagesReady) >= bundled && int(h.FetchedReady) >= fetched {
		n.hold(list, int(h.ImagesPinned) >= bundled)
	}
}

// hold adds a hold list of which the node has everything: of an incomplete one it
// is not said which images are there.
func (n *nodeFacts) hold(list model.HoldList, pinned bool) {
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
		add(c, r.Repository+"@"+img.Digest)
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

func add(c *model.CachedImage, name string) {
	if !slices.Contains(c.Names, name) {
		c.Names = append(c.Names, name)
	}
}
