package auditfacts

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imagetag/restartforecast"
	"github.com/refit-dev/refit/internal/model"
)

// Facts are the facts about the images of a cluster.
type Facts struct {
	Nodes []model.ImageNode
	Pods  []model.ImagePod
	// Templates are those of workloads without a running pod.
	Templates []model.ImagePod
	Published map[string]model.Published
	// GoneDigests are repository@digest that their registry has deleted.
	GoneDigests map[string]bool
	Same        *model.SameImages
	// Schemes are the tag schemes of tracks, by repository.
	Schemes map[string]string
	// Previous is the previous digest of tracks, by repository.
	Previous map[string]string
	// AlwaysPull is whether the API server forces pull policy Always.
	AlwaysPull restartforecast.Admission
}

// Facts converts all objects.
func (o *Objects) Facts() Facts {
	f := Facts{Published: o.published(), GoneDigests: o.goneDigests(), Same: &model.SameImages{}, Schemes: map[string]string{}, Previous: map[string]string{}}
	for i := range o.Tracks {
		t := &o.Tracks[i]
		f.Schemes[t.Spec.Repository] = t.Spec.Scheme
		if len(t.Status.History) > 0 {
			f.Previous[t.Spec.Repository] = t.Status.History[0].Digest
		}
	}
	byNode := map[string][]*model.ImagePod{}
	for i := range o.Pods {
		if p, ok := Pod(&o.Pods[i]); ok {
			f.Pods = append(f.Pods, p)
		}
	}
	for i := range f.Pods {
		byNode[f.Pods[i].Node] = append(byNode[f.Pods[i].Node], &f.Pods[i])
	}
	f.AlwaysPull = admission(o.Pods, f.Pods)
	updates, holds := o.reportsAndPinLists()
	for i := range o.Nodes {
		n := o.nodeFacts(&o.Nodes[i])
		n.addAgentReport(updates[n.Name], holds)
		n.addProofs(byNode[n.Name])
		for j := range n.Images {
			f.Same.Join(digests(&n.Images[j])...)
		}
		f.Nodes = append(f.Nodes, n.ImageNode)
	}
	for _, p := range f.Published {
		f.Same.Join(append([]string{p.Digest}, p.Same...)...)
	}
	f.Templates = o.templates(f.Pods)
	return f
}

func (o *Objects) nodeFacts(n *corev1.Node) nodeFacts {
	if k, ok := o.Kubelets[n.Name]; ok {
		return readNode(n, &k)
	}
	return readNode(n, nil)
}

// digests returns all digests of one image: a runtime lists those of one configuration
// together.
func digests(c *model.CachedImage) []string {
	var out []string
	for _, name := range c.Names {
		if _, d, ok := strings.Cut(name, "@"); ok {
			out = append(out, d)
		}
	}
	if c.ID != "" {
		out = append(out, c.ID)
	}
	return out
}

// reportsAndPinLists returns the agents' reports by node, and the pin lists by name.
func (o *Objects) reportsAndPinLists() (map[string]*v1alpha1.NodeUpdate, map[string]model.PinSet) {
	updates, holds := map[string]*v1alpha1.NodeUpdate{}, map[string]model.PinSet{}
	for i := range o.NodeUpdates {
		updates[o.NodeUpdates[i].Name] = &o.NodeUpdates[i]
	}
	for i := range o.Contents {
		c := &o.Contents[i]
		var list model.PinSet
		if c.Type == v1alpha1.ContentPins && c.Name == v1alpha1.ContentName(c.Type, c.Data) && json.Unmarshal([]byte(c.Data), &list) == nil {
			holds[c.Name] = list
		}
	}
	return updates, holds
}

// admission reports whether AlwaysPullImages is on: an API server has it in its arguments, and
// a pod without policy Always proves that it is off.
func admission(objects []corev1.Pod, pods []model.ImagePod) restartforecast.Admission {
	for i := range objects {
		if ForcesPull(&objects[i]) {
			return restartforecast.AdmissionOn
		}
	}
	for i := range pods {
		p := &pods[i]
		if !p.Static && slices.ContainsFunc(p.Uses, func(u model.ImageUse) bool { return u.Policy != model.PullAlways && u.Kind != model.UseVolume }) {
			return restartforecast.AdmissionOff
		}
	}
	return restartforecast.AdmissionUnknown
}

// ForcesPull reports whether a pod is an API server with the admission plugin AlwaysPullImages.
func ForcesPull(p *corev1.Pod) bool {
	if p.Namespace != "kube-system" || p.Labels["component"] != "kube-apiserver" {
		return false
	}
	for i := range p.Spec.Containers {
		for _, a := range slices.Concat(p.Spec.Containers[i].Command, p.Spec.Containers[i].Args) {
			list, ok := strings.CutPrefix(a, "--enable-admission-plugins=")
			if ok && slices.Contains(strings.Split(list, ","), "AlwaysPullImages") {
				return true
			}
		}
	}
	return false
}

// Site is the input of the restart forecast.
func (f Facts) Site() restartforecast.Site {
	return restartforecast.Site{Nodes: f.Nodes, Pods: f.Pods, Published: f.Published, GoneDigests: f.GoneDigests, Same: f.Same, AlwaysPull: f.AlwaysPull}
}
