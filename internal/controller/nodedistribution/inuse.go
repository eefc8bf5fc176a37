package nodedistribution

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imagetag"
)

// podsAtOnce are asked for in one page.
const podsAtOnce = 500

// podImages is what pods ran when they were last asked.
type podImages struct {
	at time.Time
	// pods by a reference of theirs: repository:tag, and @digest.
	pods map[string]string
}

// unusedSets returns the removable sets whose images no pod needs, or another set has too.
// This holds for refit's own image as well: it stays until its pods use another one. The
// other sets stay, with the reason. Sets of revoked bundles go without a check.
func (r *Reconciler) unusedSets(ctx context.Context, w *fleetSnapshot, sets []*v1alpha1.PinnedImageSet) ([]*v1alpha1.PinnedImageSet, error) {
	if len(sets) == 0 || r.Live == nil {
		return sets, nil
	}
	// All pods are asked for only before something goes, and seldom while it stays.
	every := max(time.Minute, progressEvery(len(w.nodes)))
	if w.now.Sub(r.running.at) < every && len(w.setsWithoutPods(sets, r.running.pods)) == 0 {
		return nil, nil
	}
	pods, err := runningImages(ctx, r.Live)
	if err != nil {
		return nil, err
	}
	r.running = podImages{w.now, pods}
	return w.setsWithoutPods(sets, pods), nil
}

// setsWithoutPods leaves out the sets that pods need, and notes why.
func (w *fleetSnapshot) setsWithoutPods(sets []*v1alpha1.PinnedImageSet, pods map[string]string) (gone []*v1alpha1.PinnedImageSet) {
	w.keptReasons = map[string]string{}
	for _, s := range sets {
		if slices.Contains(w.trust().RevokedDigests, s.Spec.Bundle) {
			gone = append(gone, s)
			continue
		}
		if why := w.neededBy(s, sets, pods); why != "" {
			w.keptReasons[s.Name] = why
			continue
		}
		gone = append(gone, s)
	}
	return gone
}

// neededBy returns the pod that runs an image of this set alone, empty if there is none. A
// set whose bundle cannot be read now stays.
func (w *fleetSnapshot) neededBy(s *v1alpha1.PinnedImageSet, going []*v1alpha1.PinnedImageSet, pods map[string]string) string {
	h, err := w.header(s.Spec.Bundle)
	if err != nil {
		return "what it holds is not known now"
	}
	others := w.imagesWithout(going)
	for _, i := range h.Metadata.Images {
		if others[i.Name+"@"+i.Digest] {
			continue
		}
		for _, ref := range []string{i.Name, "@" + i.Digest} {
			if pod := pods[ref]; pod != "" {
				return fmt.Sprintf("pod %s runs %s, which nothing else brings", pod, i.Name)
			}
		}
	}
	return ""
}

// imagesWithout are the images of all sets but those that may go.
func (w *fleetSnapshot) imagesWithout(going []*v1alpha1.PinnedImageSet) map[string]bool {
	out := map[string]bool{}
	for i := range w.sets {
		s := &w.sets[i]
		if slices.Contains(going, s) || !s.DeletionTimestamp.IsZero() {
			continue
		}
		for _, g := range s.Spec.Groups {
			for _, img := range g.Images {
				out[img.Name+"@"+img.Digest] = true
			}
		}
		if h, err := w.header(s.Spec.Bundle); err == nil && s.Spec.AllOfBundle {
			for _, img := range h.Metadata.Images {
				out[img.Name+"@"+img.Digest] = true
			}
		}
	}
	return out
}

// runningImages are the references of all pods that have not ended.
func runningImages(ctx context.Context, c client.Reader) (map[string]string, error) {
	out := map[string]string{}
	next := ""
	for {
		var l corev1.PodList
		if err := c.List(ctx, &l, client.Limit(podsAtOnce), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list the pods, of whose images none may be let go: %w", err)
		}
		for i := range l.Items {
			recordReference(out, &l.Items[i])
		}
		if next = l.Continue; next == "" {
			return out, nil
		}
	}
}

func recordReference(out map[string]string, p *corev1.Pod) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	name := p.Namespace + "/" + p.Name
	for _, cs := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range cs {
			ref, err := imagetag.ParseRef(cs[i].Image)
			if err != nil {
				continue
			}
			out[strings.TrimSuffix(ref.Repository+":"+ref.Tag, ":")] = name
			if ref.Digest != "" {
				out["@"+ref.Digest] = name
			}
		}
	}
}
