package inputs

import (
	"cmp"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
)

const (
	// maxDigests of one name that are kept, and maxOnNodes names that nodes report.
	maxDigests = 16
	maxOnNodes = 200_000
)

// RunningImage is a digest that containers run under a tag.
type RunningImage struct {
	// Digest of the manifest or index; if IsID that of the image's configuration. A runtime
	// reports it for an image that came from no registry.
	Digest string
	IsID   bool
	// Containers counts them; 0 if only the status of nodes has it. At is one of them.
	Containers int
	At         string
}

type container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

type containerStatus struct {
	Name    string `json:"name"`
	Image   string `json:"image"`
	ImageID string `json:"imageID"`
}

// isRunningPod notes what a pod's containers run. A pod that ended restarts nothing.
func isRunningPod(r *clusterReader, o *listedObject) (bool, error) {
	var spec struct {
		Containers          []container `json:"containers"`
		InitContainers      []container `json:"initContainers"`
		EphemeralContainers []container `json:"ephemeralContainers"`
	}
	var status struct {
		Phase                      string            `json:"phase"`
		ContainerStatuses          []containerStatus `json:"containerStatuses"`
		InitContainerStatuses      []containerStatus `json:"initContainerStatuses"`
		EphemeralContainerStatuses []containerStatus `json:"ephemeralContainerStatuses"`
	}
	if err := o.part("status", &status); err != nil {
		return false, err
	}
	if status.Phase == "Succeeded" || status.Phase == "Failed" {
		r.out.Finished++
		return false, nil
	}
	if err := o.part("spec", &spec); err != nil {
		return false, err
	}
	images := map[string]string{}
	for _, c := range slices.Concat(spec.Containers, spec.InitContainers, spec.EphemeralContainers) {
		images[c.Name] = c.Image
	}
	for _, s := range slices.Concat(status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses) {
		r.noteRunning(o, images[s.Name], s)
	}
	return true, nil
}

// noteRunning counts a container that runs a digest under a tag.
func (r *clusterReader) noteRunning(o *listedObject, image string, s containerStatus) {
	want, err := imagetag.ParseRef(image)
	digest, isID := parseImageID(s.ImageID)
	if err != nil || want.Tag == "" || want.Digest != "" || digest == "" {
		return
	}
	// A changed pod has the new tag in its specification, while the container of the old one
	// still runs.
	is, err := imagetag.ParseRef(s.Image)
	if err == nil && is.Repository == want.Repository && is.Tag != "" && is.Tag != want.Tag {
		return
	}
	r.countDigest(want.String(), RunningImage{Digest: digest, IsID: isID, Containers: 1, At: o.String() + " " + s.Name})
}

func (r *clusterReader) countDigest(name string, x RunningImage) {
	all := r.running[name]
	if all == nil {
		all = map[string]*RunningImage{}
		r.running[name] = all
	}
	if have := all[x.Digest]; have != nil {
		have.Containers += x.Containers
	} else if len(all) < maxDigests {
		all[x.Digest] = &x
	}
}

// parseImageID reads the ID of a container's image: REPOSITORY@DIGEST, or the digest of the
// image's configuration.
func parseImageID(s string) (digest string, isID bool) {
	if _, rest, ok := strings.Cut(s, "://"); ok { // docker-pullable://
		s = rest
	}
	if _, d, ok := strings.Cut(s, "@"); ok {
		s = d
	} else {
		isID = true
		s = "sha256:" + strings.TrimPrefix(s, "sha256:")
	}
	if !isDigest(s) {
		return "", false
	}
	return s, isID
}

func isDigest(s string) bool {
	text, ok := strings.CutPrefix(s, "sha256:")
	raw, err := hex.DecodeString(text)
	return ok && err == nil && len(raw) == 32 && strings.ToLower(text) == text
}

// nodeImage is a name that nodes report.
type nodeImage struct {
	// node that reported it first.
	node    string
	digests map[string]bool
}

// nodeImages notes the images of a node's status. It has at most 50 of them, the largest.
func nodeImages(r *clusterReader, o *listedObject) (bool, error) {
	var status struct {
		Images []struct {
			Names []string `json:"names"`
		} `json:"images"`
	}
	if err := o.part("status", &status); err != nil {
		return false, err
	}
	for _, image := range status.Images {
		digests := map[string]string{}
		for _, name := range image.Names {
			if ref, err := imagetag.ParseRef(name); err == nil && ref.Tag == "" && ref.Digest != "" {
				digests[ref.Repository] = ref.Digest
			}
		}
		for _, name := range image.Names {
			if ref, err := imagetag.ParseRef(name); err == nil && ref.Tag != "" {
				r.noteOnNode(o.name, imagetag.Ref{Repository: ref.Repository, Tag: ref.Tag}.String(), cmp.Or(ref.Digest, digests[ref.Repository]))
			}
		}
	}
	return false, nil
}

func (r *clusterReader) noteOnNode(node, name, digest string) {
	have := r.onNodes[name]
	if have == nil {
		if len(r.onNodes) == maxOnNodes {
			return
		}
		have = &nodeImage{node: node, digests: map[string]bool{}}
		r.onNodes[name] = have
	}
	if digest != "" && len(have.digests) < maxDigests {
		have.digests[digest] = true
	}
}

// finish orders the digests, and adds what only nodes report.
func (r *clusterReader) finish() {
	for name, n := range r.onNodes {
		if len(r.running[name]) > 0 {
			continue
		}
		for d := range n.digests {
			r.countDigest(name, RunningImage{Digest: d, At: "Node/" + n.node})
		}
	}
	for name, all := range r.running {
		for _, x := range all {
			r.out.Running[name] = append(r.out.Running[name], *x)
		}
		slices.SortFunc(r.out.Running[name], func(a, b RunningImage) int {
			return cmp.Or(cmp.Compare(b.Containers, a.Containers), cmp.Compare(a.Digest, b.Digest))
		})
	}
	for _, name := range slices.Sorted(maps.Keys(r.onNodes)) {
		if r.images[name] {
			continue
		}
		ref := imagerefs.Ref{Image: name, Rule: RuleNode, Maybe: true, Object: imagerefs.Object{Kind: nodeKind, Name: r.onNodes[name].node}, Path: "status.images"}
		if isSandbox(name) {
			ref.Rule, ref.Maybe = RuleSandbox, false
		}
		r.out.Nodes = append(r.out.Nodes, ref)
	}
}

// isSandbox reports whether a name is that of the sandbox image, as kubeadm and the runtimes
// call it.
func isSandbox(name string) bool {
	ref, err := imagetag.ParseRef(name)
	return err == nil && path.Base(ref.Repository) == "pause"
}

// fullName is a reference as runtimes write it.
func fullName(image string) string {
	ref, err := imagetag.ParseRef(image)
	if err != nil {
		return image
	}
	return ref.String()
}

// hasPods reports whether a ReplicaSet or ReplicationController has or wants pods.
func hasPods(r *clusterReader, o *listedObject) (bool, error) {
	var spec, status struct {
		Replicas *int `json:"replicas"`
	}
	if err := o.part("spec", &spec); err != nil {
		return false, err
	}
	if err := o.part("status", &status); err != nil {
		return false, err
	}
	if spec.Replicas != nil && *spec.Replicas == 0 && (status.Replicas == nil || *status.Replicas == 0) {
		r.out.Idle++
		return false, nil
	}
	return true, nil
}

// isUnfinishedJob reports whether a Job may still start pods.
func isUnfinishedJob(r *clusterReader, o *listedObject) (bool, error) {
	var status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	}
	if err := o.part("status", &status); err != nil {
		return false, err
	}
	for _, c := range status.Conditions {
		if (c.Type == "Complete" || c.Type == "Failed") && c.Status == "True" {
			r.out.Finished++
			return false, nil
		}
	}
	return true, nil
}
