package imagetracks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/model"
)

const (
	// maxMarks are written in one reconcile: a large site gets them in steps.
	maxMarks = 100
	// maxMarkName is the longest name of an annotation, after its prefix.
	maxMarkName = 63
)

// nodeMarks are the marks of a track: as they must be, and the nodes whose mark differs.
type nodeMarks struct {
	key  string
	want map[string]string
	odd  []*corev1.Node
	// reboot asks for a reboot of nodes that have taken a disruptive image; taken are the nodes
	// whose pods run the image. Both are empty while no reboot is asked for.
	reboot string
	taken  map[string]bool
}

// markKey is the annotation of a track.
func markKey(name string) string {
	if len(name) > maxMarkName {
		digest := model.DigestOf([]byte(name))
		name = name[:maxMarkName-9] + "-" + digest[len(digest)-8:]
	}
	return v1alpha1.AnnotationUpdatesPrefix + name
}

// findMarks compares the marks of the nodes with what their pods run. The status counts a mark
// until it is gone, so that a controller that restarts removes the rest.
func (r *Reconciler) findMarks(ctx context.Context, l *turn, candidates []track.Candidate) error {
	l.marks = nodeMarks{key: markKey(l.o.Name), want: map[string]string{}, taken: map[string]bool{}}
	if next := track.Pending(l.state, candidates); l.o.Spec.NodeMarks && next != nil {
		for _, w := range l.ws {
			w.Running(l.t, func(digest, node string) {
				switch {
				case next.Is(digest):
					l.marks.taken[node] = true
				case node != "":
					l.marks.want[node] = next.Mark() + " " + orDefault(next.Long, next.Tag)
				}
			})
		}
		if l.o.Spec.RequestReboot && next.Mark() == track.Disruptive {
			l.marks.reboot = fmt.Sprintf("ImageTrack %s: pods of this node run %s since this boot", l.o.Name, orDefault(next.Long, next.Tag))
		}
	}
	l.status.MarkedNodes = int32(len(l.marks.want)) //nolint:gosec // a number of nodes
	if !l.o.Spec.NodeMarks && l.o.Status.MarkedNodes == 0 {
		return nil
	}
	marked, err := r.compareMarks(ctx, &l.marks)
	l.status.MarkedNodes = max(l.status.MarkedNodes, marked)
	return err
}

// compareMarks finds the nodes whose mark differs, and counts those that have one.
func (r *Reconciler) compareMarks(ctx context.Context, m *nodeMarks) (marked int32, err error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		have, is := n.Annotations[m.key]
		if is {
			marked++
		}
		if have != m.want[n.Name] {
			m.odd = append(m.odd, n)
		}
	}
	return marked, nil
}

// writeMarks corrects the marks of some nodes.
func (r *Reconciler) writeMarks(ctx context.Context, m *nodeMarks) error {
	for _, n := range m.odd[:min(len(m.odd), maxMarks)] {
		before := n.DeepCopy()
		if err := r.requestReboot(ctx, n, m); err != nil {
			return err
		}
		if mark := m.want[n.Name]; mark == "" {
			delete(n.Annotations, m.key)
		} else {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[m.key] = mark
		}
		err := r.Client.Patch(ctx, n, client.MergeFrom(before), client.FieldOwner(v1alpha1.FieldOwnerTracks))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("mark node %s: %w", n.Name, err)
		}
	}
	m.odd = slices.Delete(m.odd, 0, min(len(m.odd), maxMarks))
	return nil
}

// requestReboot asks for a reboot of a node whose pods have taken a disruptive image. The mark goes
// afterwards, so the request is repeated if the controller ends in between.
func (r *Reconciler) requestReboot(ctx context.Context, known *corev1.Node, m *nodeMarks) error {
	if m.reboot == "" || m.want[known.Name] != "" || !m.taken[known.Name] || !strings.HasPrefix(known.Annotations[m.key], track.Disruptive+" ") {
		return nil
	}
	var n corev1.Node // the cache has less of it
	if err := r.Live.Get(ctx, client.ObjectKey{Name: known.Name}, &n); err != nil {
		return client.IgnoreNotFound(err)
	}
	if n.Status.NodeInfo.BootID == "" {
		return nil
	}
	_, err := ssa.NodeSpec(ctx, r.Client, v1alpha1.FieldOwnerReboot, n.Name, &v1alpha1.NodeUpdateSpec{Reboot: &v1alpha1.RebootRequest{BootID: n.Status.NodeInfo.BootID, Cause: m.reboot}})
	return err
}

// removeMarks of a track that was deleted.
func (r *Reconciler) removeMarks(ctx context.Context, name string) error {
	return r.removeAll(ctx, &nodeMarks{key: markKey(name)})
}

func (r *Reconciler) removeAll(ctx context.Context, m *nodeMarks) error {
	_, err := r.compareMarks(ctx, m)
	for err == nil && len(m.odd) > 0 {
		err = r.writeMarks(ctx, m)
	}
	return err
}

// retryMarks is how long the start waits after an error before it looks for old marks again.
const retryMarks = 30 * time.Second

// removeOldMarks removes the marks and cordons of tracks that were deleted while no controller ran:
// their deletion causes no reconcile. It tries until it succeeds once.
func (r *Reconciler) removeOldMarks(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, retryMarks, true, func(ctx context.Context) (bool, error) {
		err := r.removeOldMarksOnce(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "failed to remove the marks of deleted tracks")
		}
		return err == nil, nil
	})
}

func (r *Reconciler) removeOldMarksOnce(ctx context.Context) error {
	// Nodes first: a mark that is on a node belongs to a track that exists later, or is old.
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	var tracks v1alpha1.ImageTrackList
	if err := r.Live.List(ctx, &tracks); err != nil {
		return fmt.Errorf("list ImageTracks: %w", err)
	}
	old := map[string]*nodeMarks{}
	for i := range nodes.Items {
		for key := range nodes.Items[i].Annotations {
			if strings.HasPrefix(key, v1alpha1.AnnotationUpdatesPrefix) {
				old[key] = &nodeMarks{key: key}
			}
		}
	}
	exists := map[string]bool{}
	for i := range tracks.Items {
		exists[tracks.Items[i].Name] = true
		delete(old, markKey(tracks.Items[i].Name))
	}
	for _, m := range old {
		if err := r.removeAll(ctx, m); err != nil {
			return err
		}
	}
	return r.releaseOf(ctx, func(track string) bool { return !exists[track] })
}
