package updatecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// maxWithout is how many images a node names at most in its status.
const maxWithout = 16

// gatherStartFacts reads the state of the node, and the copies of its peers.
func gatherStartFacts(ctx context.Context, c client.Client, node string) (pin.StartFacts, *v1alpha1.NodeUpdate, error) {
	f := pin.StartFacts{Node: node}
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return f, nil, console.UsageError(fmt.Errorf("node %q not found; see kubectl get nodes", node))
		}
		return f, nil, fmt.Errorf("the API server did not answer: %w", err)
	}
	var all v1alpha1.NodeUpdateList
	if err := c.List(ctx, &all, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return f, nil, fmt.Errorf("the API server did not answer: %w", err)
	}
	lists := map[string]model.PinSet{}
	var mine *v1alpha1.NodeUpdate
	for i := range all.Items {
		nu := &all.Items[i]
		held, err := readHoldList(ctx, c, nu, lists)
		if err != nil {
			return f, nil, err
		}
		if nu.Name == node {
			mine, f.Pinned = nu, held.Images
			continue
		}
		f.Peers = append(f.Peers, describePeer(nu, held.Images))
	}
	if mine != nil {
		addNodeFacts(&f, mine, n.Status.NodeInfo.BootID)
	}
	used, err := listUsedImages(ctx, c, node)
	f.Used = used
	return f, mine, err
}

// addNodeFacts copies what the node's agent reported.
func addNodeFacts(f *pin.StartFacts, nu *v1alpha1.NodeUpdate, boot string) {
	h, s := nu.Status.Pins, nu.Status.ColdStart
	f.Known = h != nil && s != nil && h.Content == nu.Spec.Pins
	if !f.Known {
		return
	}
	f.Complete = h.ImagesTotal > 0 && h.ImagesPinned == h.ImagesTotal
	f.NoCopy, f.MoreWithoutCopy = s.Without, len(s.Without) == maxWithout && s.Copies+maxWithout < h.ImagesTotal
	f.Checked = s.CheckedBoot != "" && s.CheckedBoot == boot
}

// readHoldList is the hold list of a node, read once for all that share it.
func readHoldList(ctx context.Context, c client.Client, nu *v1alpha1.NodeUpdate, known map[string]model.PinSet) (model.PinSet, error) {
	name := nu.Spec.Pins
	if l, ok := known[name]; ok || name == "" {
		return l, nil
	}
	var content v1alpha1.Content
	if err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &content); err != nil {
		return model.PinSet{}, fmt.Errorf("the hold list of node %s: %w", nu.Name, err)
	}
	var l model.PinSet
	if err := json.Unmarshal([]byte(content.Data), &l); err != nil {
		return l, fmt.Errorf("the hold list of node %s: %w", nu.Name, err)
	}
	known[name] = l
	return l, nil
}

// describePeer returns the images that another node reports copies of.
func describePeer(nu *v1alpha1.NodeUpdate, held []model.PinSetImage) pin.Peer {
	n := pin.Peer{Node: nu.Name, Copies: map[string]bool{}}
	s, h := nu.Status.ColdStart, nu.Status.Pins
	if s == nil || h == nil || h.Content != nu.Spec.Pins || len(s.Without) == maxWithout && s.Copies+maxWithout < h.ImagesTotal {
		return n
	}
	for _, i := range held {
		if !i.Registry && !slices.Contains(s.Without, i.Name) {
			n.Copies[pin.Key(i)] = true
		}
	}
	return n
}

// listUsedImages returns the images of the pods on a node.
func listUsedImages(ctx context.Context, c client.Client, node string) ([]pin.UsedImage, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("the API server did not answer: %w", err)
	}
	byImage := map[string]*pin.UsedImage{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, k := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			u := byImage[k.Image]
			if u == nil {
				u = &pin.UsedImage{Image: k.Image}
				byImage[k.Image] = u
			}
			u.System = u.System || isSystemPod(p)
			if name := p.Namespace + "/" + p.Name; !slices.Contains(u.Pods, name) {
				u.Pods = append(u.Pods, name)
			}
		}
	}
	out := make([]pin.UsedImage, 0, len(byImage))
	for _, u := range byImage {
		out = append(out, *u)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Image < out[j].Image })
	return out, nil
}

// isSystemPod reports whether the node needs the pod to work.
func isSystemPod(p *corev1.Pod) bool {
	return p.Annotations[corev1.MirrorPodAnnotationKey] != "" || p.Spec.PriorityClassName == "system-node-critical" || p.Spec.PriorityClassName == "system-cluster-critical"
}
