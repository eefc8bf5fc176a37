package nodedistribution

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/text"
)

// retain decides which approved bundles nodes hold.
func (w *fleetSnapshot) retain(approvals map[string]approval) map[string]pin.Retention {
	changing := w.changingNodes()
	versions := map[string]*v1alpha1.BundleStatus{}
	var all []pin.ApprovedBundle
	for i := range w.bundles {
		b := &w.bundles[i]
		d := digestOf(b)
		if !approvals[d].ok || versions[d] != nil || !b.DeletionTimestamp.IsZero() {
			continue
		}
		versions[d] = w.describedStatus(b, d)
		one := pin.ApprovedBundle{Digest: d, Product: versions[d].Name, Kubernetes: versions[d].KubernetesVersion, Approved: b.CreationTimestamp.Time, Node: changing[d], HeldBy: w.heldBy(b, d)}
		one.Released = b.Status.Digest == d && b.Status.Retention != nil && b.Status.Retention.Use == v1alpha1.BundleReleased
		for i := range w.moves {
			countUpdate(&one, &w.moves[i])
		}
		all = append(all, one)
	}
	for i := range all {
		all[i].OlderThan = olderThan(all[i].Digest, versions)
	}
	return pin.Retain(all, w.runningVersions(), w.keepReleases())
}

// describedStatus is the status of a Bundle with what its header says. Without the header,
// the last status counts: no node has the header of a released bundle.
func (w *fleetSnapshot) describedStatus(b *v1alpha1.Bundle, digest string) *v1alpha1.BundleStatus {
	if h, err := w.header(digest); err == nil {
		st := &v1alpha1.BundleStatus{}
		describe(st, h)
		return st
	}
	if b.Status.Digest != digest {
		return &v1alpha1.BundleStatus{}
	}
	return &b.Status
}

// olderThan are the bundles of the same name with a later version.
func olderThan(digest string, all map[string]*v1alpha1.BundleStatus) map[string]bool {
	out := map[string]bool{}
	for d, st := range all {
		if st.Name == all[digest].Name && componentversion.LessBundle(all[digest].Version, st.Version) {
			out[d] = true
		}
	}
	return out
}

// countUpdate adds what an update says of a bundle.
func countUpdate(b *pin.ApprovedBundle, m *v1alpha1.ClusterUpdate) {
	switch at := slices.Index(m.Bundles(), b.Digest); {
	case at < 0:
	case m.Status.Phase != v1alpha1.PhaseDone || m.Status.FinishedAt == nil:
		b.Update = m.Name
	case len(m.Spec.Nodes) > 0:
		b.SomeDone = latest(b.SomeDone, m.Status.FinishedAt.Time)
	default:
		end := hopEnd(m, at)
		if b.FirstDone.IsZero() || end.Before(b.FirstDone) {
			b.FirstDone = end
		}
		b.LastDone = latest(b.LastDone, end)
	}
}

// hopEnd is when a hop of an update that is done was done.
func hopEnd(m *v1alpha1.ClusterUpdate, at int) time.Time {
	if at < len(m.Spec.Hops) && at < len(m.Status.Hops) && m.Status.Hops[at].FinishedAt != nil {
		return m.Status.Hops[at].FinishedAt.Time
	}
	return m.Status.FinishedAt.Time
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// heldBy names the object by which an administrator holds a bundle, empty if there is none.
// Images that are assembled on the site need their base, so their sets count.
func (w *fleetSnapshot) heldBy(b *v1alpha1.Bundle, digest string) string {
	if b.Spec.Keep {
		return "spec.keep of Bundle " + b.Name
	}
	for i := range w.sets {
		if s := &w.sets[i]; s.Spec.Bundle == digest && s.DeletionTimestamp.IsZero() && (!isOurs(s) || s.Name != setName(digest)) {
			return "PinnedImageSet " + s.Name
		}
	}
	for i := range w.streams {
		if s := &w.streams[i]; s.Spec.Bundle != nil && s.Spec.Bundle.Digest == digest && s.DeletionTimestamp.IsZero() {
			return "BootImageStream " + s.Name
		}
	}
	return ""
}

// changingNodes has a node with an unfinished run for every bundle that has one.
func (w *fleetSnapshot) changingNodes() map[string]string {
	out := map[string]string{}
	for _, g := range w.countKinds().groups {
		if g.changing != "" && out[g.changing] == "" {
			out[g.changing] = w.nodes[g.first].Name
		}
	}
	return out
}

// runningVersions has a node for every Kubernetes version that kubelets report.
func (w *fleetSnapshot) runningVersions() map[string]string {
	out := map[string]string{}
	for _, g := range w.countKinds().groups {
		if g.kubelet != "" && out[g.kubelet] == "" {
			out[g.kubelet] = w.nodes[g.first].Name
		}
	}
	return out
}

// keepReleases is the largest number of all pools: a bundle is on all nodes or on none.
func (w *fleetSnapshot) keepReleases() int {
	keep, known := 0, false
	for i := range w.pools {
		p := &w.pools[i]
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		n := pin.DefaultReleases
		if p.Spec.KeepReleases != nil {
			n = int(*p.Spec.KeepReleases)
		}
		keep, known = max(keep, n), true
	}
	if !known {
		return pin.DefaultReleases
	}
	return keep
}

func (w *fleetSnapshot) released(digest string) bool {
	return w.retained[digest].Use == pin.UseReleased
}

// releasedMessage says why a bundle is released, and what keeps its images for now.
func (w *fleetSnapshot) releasedMessage(digest string) string {
	message := "nodes no longer hold it: " + w.retained[digest].Message
	if why := w.keptReasons[setName(digest)]; why != "" {
		message = w.retained[digest].Message + "; nodes still hold it: " + why
	}
	return message
}

// retentionStatus is the retention of an approved bundle for its status, nil for others.
func (w *fleetSnapshot) retentionStatus(b *v1alpha1.Bundle, digest string) *v1alpha1.BundleRetention {
	r, ok := w.retained[digest]
	if !ok {
		return nil
	}
	out := &v1alpha1.BundleRetention{Use: v1alpha1.BundleUse(r.Use), Message: text.Truncate(r.Message, 1024)}
	if r.Use == pin.UseReleased {
		out.Message = text.Truncate(w.releasedMessage(digest), 1024)
	}
	before := b.Status.Retention
	if before == nil {
		before = &v1alpha1.BundleRetention{}
	}
	if h, err := w.header(digest); err == nil {
		f := w.frees(h)
		out.OwnImages, out.FreesBytes = int32(f.images), f.bytes
	} else {
		out.OwnImages, out.FreesBytes = before.OwnImages, before.FreesBytes
	}
	if r.Use == pin.UseReleased {
		out.ReleasedAt = before.ReleasedAt
		if before.Use != v1alpha1.BundleReleased || out.ReleasedAt == nil {
			at := metav1.NewTime(w.now.Truncate(time.Second))
			out.ReleasedAt = &at
		}
	}
	return out
}

// freed is what nodes free if they no longer hold a bundle.
type freed struct {
	images int
	bytes  int64
}

// freedIndex remembers results by bundle, needs of nodes and the other held bundles: headers have
// thousands of blobs.
type freedIndex struct{ known map[string]freed }

// maxFreed bounds the index.
const maxFreed = 64

// frees returns the most that a node of any platform and role of the cluster frees.
func (w *fleetSnapshot) frees(h *bundle.Header) freed {
	var others []*bundle.Header
	var all []pin.Needs
	for d, r := range w.retained {
		if other, err := w.header(d); err == nil && d != h.Digest && r.Use != pin.UseReleased {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b *bundle.Header) int { return strings.Compare(a.Digest, b.Digest) })
	for _, g := range w.countKinds().groups {
		if n := g.needs(); !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b pin.Needs) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	key := h.Digest + fmt.Sprint(all)
	for _, o := range others {
		key += " " + o.Digest
	}
	return w.freed.get(key, func() (most freed) {
		for _, n := range all {
			if f := pin.Frees(h, others, n); f.Bytes > most.bytes || most.images == 0 {
				most = freed{f.Images, f.Bytes}
			}
		}
		return most
	})
}

// get returns what is known, or finds and remembers it. A nil index remembers nothing.
func (x *freedIndex) get(key string, find func() freed) freed {
	if x == nil {
		return find()
	}
	if f, ok := x.known[key]; ok {
		return f
	}
	if x.known == nil || len(x.known) >= maxFreed {
		x.known = map[string]freed{}
	}
	f := find()
	x.known[key] = f
	return f
}

// emitRetention emits an event about a Bundle when it is released, or held again.
func (r *Reconciler) emitRetention(b *v1alpha1.Bundle, now *v1alpha1.BundleStatus) {
	was := b.Status.Retention != nil && b.Status.Retention.Use == v1alpha1.BundleReleased
	is := now.Retention != nil && now.Retention.Use == v1alpha1.BundleReleased
	switch {
	case r.Events == nil || was == is:
	case is:
		r.Events.Eventf(b, nil, corev1.EventTypeNormal, v1alpha1.ReasonReleased, "Release", "%s",
			fmt.Sprintf("bundle %s %s: %s. Each node frees up to %d bytes (%s)", now.Name, now.Version, now.Retention.Message, now.Retention.FreesBytes, text.Count(int(now.Retention.OwnImages), "image")))
	case now.Retention != nil:
		r.Events.Eventf(b, nil, corev1.EventTypeNormal, v1alpha1.ReasonCopying, "Hold", "%s",
			fmt.Sprintf("nodes hold bundle %s %s again: %s", now.Name, now.Version, now.Retention.Message))
	}
}
