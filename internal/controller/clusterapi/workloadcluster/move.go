package workloadcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// Wish is what is to become of a node.
type Wish struct {
	// Machine as namespace/name, and its UID.
	Machine, UID string
	Node         string
	// Version of Kubernetes, for example v1.36.3.
	Version string
	// ControlPlane is true if the API server of the node must have it too.
	ControlPlane bool
	// Unclaimed is true if the version is no part of the change: then it is enough
	// that the kubelet says it.
	Unclaimed bool
}

// Reply says how far it is. Of Done and Failed at most one is true; neither
// means that it goes on or waits.
type Reply struct {
	Done, Failed bool
	// Moving is true while the node is being changed, or is about to be.
	Moving  bool
	Verdict model.Verdict
}

func waiting(reason, object, message, fix string) Reply {
	return Reply{Verdict: model.Verdict{Reason: reason, Object: object, Message: message, Fix: fix, Waiting: true}}
}

// Move brings the wish a step further. An error means that the cluster could not
// be asked; see Unreachable.
func Move(ctx context.Context, c client.Client, w Wish) (Reply, error) {
	var n corev1.Node
	err := c.Get(ctx, client.ObjectKey{Name: w.Node}, &n)
	if apierrors.IsNotFound(err) {
		return waiting(v1alpha1.ReasonNodeNotFound, "Node/"+w.Node, "node "+w.Node+" is not in its cluster", "wait until it joins"), nil
	}
	if err != nil {
		return Reply{}, err
	}
	notYet, err := observe(ctx, c, w, &n)
	if err != nil {
		return Reply{}, err
	}
	var u v1alpha1.ClusterUpdate
	err = c.Get(ctx, client.ObjectKey{Name: UpdateName(w)}, &u)
	switch {
	case apierrors.IsNotFound(err) && notYet == "":
		return Reply{Done: true}, nil
	case apierrors.IsNotFound(err):
		return ask(ctx, c, w)
	case err != nil:
		return Reply{}, err
	}
	return phaseFor(&u, w, notYet), nil
}

// observe says what of the wish is not so on the node, "" if all is: what the
// kubelet reports to the API server and what the agent found on the host.
func observe(ctx context.Context, c client.Client, w Wish, n *corev1.Node) (string, error) {
	var nu v1alpha1.NodeUpdate
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: w.Node}, &nu)
	if client.IgnoreNotFound(err) != nil {
		return "", err
	}
	o := nu.Status.Observed
	_, ours := n.Annotations[v1alpha1.AnnotationUpdating]
	switch k := n.Status.NodeInfo.KubeletVersion; {
	case !updateplan.Same(k, w.Version):
		return "its kubelet says " + k, nil
	case !ready(n):
		return "it is not Ready", nil
	case ours:
		return "it is not given back yet", nil
	case w.Unclaimed:
		return "", nil
	case o == nil:
		return "no agent has reported what it sees there", nil
	case !updateplan.Same(o.KubeletVersion, w.Version):
		return "its agent sees kubelet " + o.KubeletVersion, nil
	case w.ControlPlane && !updateplan.Same(o.ControlPlane, w.Version):
		return "its agent sees API server " + o.ControlPlane, nil
	}
	return "", nil
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// maxName leaves room for the rest of the object's name.
const maxName = 60

// UpdateName names the update of a machine to a version: the same wish has the
// same name, whoever asks.
func UpdateName(w Wish) string {
	sum := sha256.Sum256([]byte(w.UID + "/" + w.Version))
	name := w.Machine[strings.LastIndex(w.Machine, "/")+1:]
	return "machine-" + strings.TrimRight(name[:min(len(name), maxName)], "-.") + "-" + hex.EncodeToString(sum[:])[:10]
}

// ask makes the update, once it is known which bundle brings the version.
func ask(ctx context.Context, c client.Client, w Wish) (Reply, error) {
	digest, v, err := choose(ctx, c, w)
	if err != nil || v != nil {
		return Reply{Verdict: deref(v)}, err
	}
	if err := Forget(ctx, c, w.UID, false); err != nil {
		return Reply{}, err
	}
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: UpdateName(w), Labels: map[string]string{v1alpha1.LabelMachine: w.UID},
		Annotations: map[string]string{v1alpha1.AnnotationMachine: w.Machine}},
		Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest, Start: v1alpha1.StartImmediate, Nodes: []string{w.Node}}}
	if err := c.Create(ctx, u, client.FieldOwner(v1alpha1.FieldOwnerController)); err != nil && !apierrors.IsAlreadyExists(err) {
		return Reply{}, err
	}
	r := waiting(v1alpha1.ReasonUpdating, "ClusterUpdate/"+u.Name, "ClusterUpdate "+u.Name+" is asked for in its cluster", "")
	r.Moving = true
	return r, nil
}

func deref(v *model.Verdict) model.Verdict {
	if v == nil {
		return model.Verdict{}
	}
	return *v
}

// choose finds the bundle that brings the version. Only one whose digest a person
// named may run; of several the newest approval.
func choose(ctx context.Context, c client.Client, w Wish) (string, *model.Verdict, error) {
	var l v1alpha1.BundleList
	if err := c.List(ctx, &l); err != nil {
		return "", nil, err
	}
	var best, unnamed *v1alpha1.Bundle
	for i := range l.Items {
		b := &l.Items[i]
		switch {
		case !updateplan.Same(b.Status.KubernetesVersion, w.Version):
		case b.Spec.Digest == "":
			unnamed = b
		case best == nil || newer(b, best):
			best = b
		}
	}
	switch {
	case best != nil:
		return best.Spec.Digest, nil, nil
	case unnamed != nil:
		return "", &model.Verdict{Reason: v1alpha1.ReasonBundleNotApproved, Object: "Bundle/" + unnamed.Name, Waiting: true,
			Message: "Bundle " + unnamed.Name + " brings Kubernetes " + w.Version + ", and nobody has named its digest",
			Fix:     "put its digest into spec.digest of that Bundle in the machine's cluster"}, nil
	}
	return "", &model.Verdict{Reason: v1alpha1.ReasonBundleNotFound, Waiting: true,
		Message: "no Bundle in the machine's cluster brings Kubernetes " + w.Version,
		Fix:     "plug a stick with it into a node there and approve it"}, nil
}

func newer(a, b *v1alpha1.Bundle) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

// phaseFor reads how far an update is.
func phaseFor(u *v1alpha1.ClusterUpdate, w Wish, notYet string) Reply {
	object := "ClusterUpdate/" + u.Name
	switch u.Status.Phase {
	case v1alpha1.PhaseDone:
		return ended(object, u, w, notYet)
	case v1alpha1.PhaseHalted:
		v := blocker(u)
		v.Waiting = false
		if v.Fix == "" {
			v.Fix = "mend it and retry ClusterUpdate " + u.Name + " in the machine's cluster"
		}
		return Reply{Failed: true, Verdict: v}
	case v1alpha1.PhaseBlocked:
		return Reply{Verdict: blocker(u)}
	}
	v := blocker(u)
	if v.Message == "" {
		v = waiting(v1alpha1.ReasonUpdating, object, "ClusterUpdate "+u.Name+" is "+strings.ToLower(phase(u)), "").Verdict
	}
	v.Waiting = true
	return Reply{Moving: true, Verdict: v}
}

// ended: an update that is done proves nothing of a node that is seen otherwise.
// Shortly after the end the sight may lag; a kubelet of another version does not.
func ended(object string, u *v1alpha1.ClusterUpdate, w Wish, notYet string) Reply {
	switch {
	case notYet == "":
		return Reply{Done: true}
	case strings.HasPrefix(notYet, "its kubelet"):
		return Reply{Failed: true, Verdict: model.Verdict{Reason: v1alpha1.ReasonStepFailed, Object: object,
			Message: fmt.Sprintf("ClusterUpdate %s is done, and node %s is not at %s: %s", u.Name, w.Node, w.Version, notYet),
			Fix:     "look why the node came back as it was, then delete ClusterUpdate " + u.Name + " to have it moved again"}}
	}
	r := waiting(v1alpha1.ReasonSettling, "Node/"+w.Node, "node "+w.Node+" was moved to "+w.Version+"; "+notYet, "")
	r.Moving = true
	return r
}

func phase(u *v1alpha1.ClusterUpdate) string {
	if u.Status.Phase == "" {
		return v1alpha1.PhasePlanning
	}
	return u.Status.Phase
}

// blocker is the most important reason of an update's status.
func blocker(u *v1alpha1.ClusterUpdate) model.Verdict {
	if len(u.Status.Blockers) == 0 {
		return model.Verdict{Reason: v1alpha1.ReasonUpdating, Object: "ClusterUpdate/" + u.Name, Message: u.Status.WaitingFor, Waiting: true}
	}
	b := u.Status.Blockers[0]
	return model.Verdict{Reason: b.Reason, Object: b.Object, Message: b.Message, Fix: b.Fix, Waiting: true}
}

// Forget deletes the updates that were made for a machine: those that do not move
// its node, because another version is wanted, so that a machine never has more
// than a few; with all, whatever they do, because the machine is gone.
func Forget(ctx context.Context, c client.Client, uid string, all bool) error {
	var l v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &l, client.MatchingLabels{v1alpha1.LabelMachine: uid}); err != nil {
		return err
	}
	var errs []error
	for i := range l.Items {
		u := &l.Items[i]
		idle := u.Status.StartedAt == nil || u.Status.Phase == v1alpha1.PhaseHalted || u.Status.Phase == v1alpha1.PhaseDone
		if !all && !idle {
			continue
		}
		if u.Status.Phase == v1alpha1.PhaseUpdating || u.Status.Phase == v1alpha1.PhaseBlocked && u.Status.StartedAt != nil {
			p := u.DeepCopy()
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationAllowDelete, "true")
			if err := c.Patch(ctx, p, client.MergeFrom(u), client.FieldOwner(v1alpha1.FieldOwnerController)); client.IgnoreNotFound(err) != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, u)))
	}
	return errors.Join(errs...)
}

// Unreachable says why a cluster could not be asked, in words that stay the same
// from one try to the next.
func Unreachable(cluster string, err error) Reply {
	message := "the API server of cluster " + cluster + " does not answer"
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		message = "the API server of cluster " + cluster + " refuses refit: " + string(reason)
	}
	return waiting(v1alpha1.ReasonClusterUnreachable, "Cluster/"+cluster, message, "")
}
