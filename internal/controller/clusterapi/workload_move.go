package clusterapi

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
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// workloadNode is the version that a machine's node must reach.
type workloadNode struct {
	// Machine is namespace/name, UID the Machine's.
	Machine, UID string
	Node         string
	// Version is that of Kubernetes, for example v1.36.3.
	Version string
	// ControlPlane is true if the node's API server must reach it too.
	ControlPlane bool
	// Unclaimed is true if the change does not include the version: then the kubelet's
	// report is enough.
	Unclaimed bool
}

// workloadReply is the progress. At most one of Done and Failed is true; neither means that the
// update runs or waits.
type workloadReply struct {
	Done, Failed bool
	// Moving is true while the node changes, or is about to.
	Moving  bool
	Verdict model.Blocker
}

func waitingReply(reason, object, message, fix string) workloadReply {
	return workloadReply{Verdict: model.Blocker{Reason: reason, Object: object, Message: message, Fix: fix, Waiting: true}}
}

// moveInWorkload continues the update of a node. An error means that the cluster did not answer;
// see unreachableCluster.
func moveInWorkload(ctx context.Context, c client.Client, w workloadNode) (workloadReply, error) {
	var n corev1.Node
	err := c.Get(ctx, client.ObjectKey{Name: w.Node}, &n)
	if apierrors.IsNotFound(err) {
		return waitingReply(v1alpha1.ReasonNodeNotFound, "Node/"+w.Node, "node "+w.Node+" does not exist in its cluster", "wait until it joins"), nil
	}
	if err != nil {
		return workloadReply{}, err
	}
	notYet, err := notObserved(ctx, c, w, &n)
	if err != nil {
		return workloadReply{}, err
	}
	var u v1alpha1.ClusterUpdate
	err = c.Get(ctx, client.ObjectKey{Name: workloadUpdateName(w)}, &u)
	switch {
	case apierrors.IsNotFound(err) && notYet == "":
		return workloadReply{Done: true}, nil
	case apierrors.IsNotFound(err):
		return createUpdate(ctx, c, w)
	case err != nil:
		return workloadReply{}, err
	}
	return replyFor(&u, w, notYet), nil
}

// notObserved returns what of the target was not observed on the node, "" if nothing is
// missing: it compares the kubelet's report and the agent's observation on the host.
func notObserved(ctx context.Context, c client.Client, w workloadNode, n *corev1.Node) (string, error) {
	var nu v1alpha1.NodeUpdate
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: w.Node}, &nu)
	if client.IgnoreNotFound(err) != nil {
		return "", err
	}
	o, kubelet := nu.Status.Observed, n.Status.NodeInfo.KubeletVersion
	if o != nil {
		kubelet = distribution.Release(kubelet, o.KubeletVersion)
	}
	_, ours := n.Annotations[v1alpha1.AnnotationUpdating]
	switch {
	case !updateplan.Same(kubelet, w.Version):
		return "its kubelet reports " + kubelet, nil
	case !ready(n):
		return "it is not Ready", nil
	case ours:
		return "its update has not released it yet", nil
	case w.Unclaimed:
		return "", nil
	case o == nil:
		return "no agent has reported on it", nil
	case !updateplan.Same(o.KubeletVersion, w.Version):
		return "its agent observes kubelet " + o.KubeletVersion, nil
	case w.ControlPlane && !updateplan.Same(o.ControlPlane, w.Version):
		return "its agent observes API server " + o.ControlPlane, nil
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

// workloadUpdateName returns the name of a machine's update to a version. It is the same for every
// caller and replica.
func workloadUpdateName(w workloadNode) string {
	sum := sha256.Sum256([]byte(w.UID + "/" + w.Version))
	name := w.Machine[strings.LastIndex(w.Machine, "/")+1:]
	return "machine-" + strings.TrimRight(name[:min(len(name), maxName)], "-.") + "-" + hex.EncodeToString(sum[:])[:10]
}

// createUpdate creates the ClusterUpdate once a bundle with the version is known.
func createUpdate(ctx context.Context, c client.Client, w workloadNode) (workloadReply, error) {
	digest, v, err := chooseBundle(ctx, c, w)
	if err != nil || v != nil {
		return workloadReply{Verdict: deref(v)}, err
	}
	if err := deleteWorkloadUpdates(ctx, c, w.UID, false); err != nil {
		return workloadReply{}, err
	}
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: workloadUpdateName(w), Labels: map[string]string{v1alpha1.LabelMachine: w.UID},
		Annotations: map[string]string{v1alpha1.AnnotationMachine: w.Machine}},
		Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest, Start: v1alpha1.StartImmediate, Nodes: []string{w.Node}}}
	if err := c.Create(ctx, u, client.FieldOwner(v1alpha1.FieldOwnerController)); err != nil && !apierrors.IsAlreadyExists(err) {
		return workloadReply{}, err
	}
	r := waitingReply(v1alpha1.ReasonUpdating, "ClusterUpdate/"+u.Name, "ClusterUpdate "+u.Name+" was created in its cluster", "")
	r.Moving = true
	return r, nil
}

func deref(v *model.Blocker) model.Blocker {
	if v == nil {
		return model.Blocker{}
	}
	return *v
}

// chooseBundle returns the bundle with the version. Only a bundle whose digest a person has set
// may run; of several the newest.
func chooseBundle(ctx context.Context, c client.Client, w workloadNode) (string, *model.Blocker, error) {
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
		return "", &model.Blocker{Reason: v1alpha1.ReasonBundleNotApproved, Object: "Bundle/" + unnamed.Name, Waiting: true,
			Message: "Bundle " + unnamed.Name + " has Kubernetes " + w.Version + ", but its spec.digest is empty",
			Fix:     "put its digest into spec.digest of that Bundle in the machine's cluster"}, nil
	}
	return "", &model.Blocker{Reason: v1alpha1.ReasonBundleNotFound, Waiting: true,
		Message: "no Bundle in the machine's cluster has Kubernetes " + w.Version,
		Fix:     "plug a USB stick with it into a node there and approve it"}, nil
}

func newer(a, b *v1alpha1.Bundle) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

// replyFor returns the reply for an existing update.
func replyFor(u *v1alpha1.ClusterUpdate, w workloadNode, notYet string) workloadReply {
	object := "ClusterUpdate/" + u.Name
	switch u.Status.Phase {
	case v1alpha1.PhaseDone:
		return doneReply(object, u, w, notYet)
	case v1alpha1.PhaseHalted:
		v := blocker(u)
		v.Waiting = false
		if v.Fix == "" {
			v.Fix = "fix the cause and retry ClusterUpdate " + u.Name + " in the machine's cluster"
		}
		return workloadReply{Failed: true, Verdict: v}
	case v1alpha1.PhaseBlocked:
		return workloadReply{Verdict: blocker(u)}
	}
	v := blocker(u)
	if v.Message == "" {
		v = waitingReply(v1alpha1.ReasonUpdating, object, "ClusterUpdate "+u.Name+" is "+strings.ToLower(phase(u)), "").Verdict
	}
	v.Waiting = true
	return workloadReply{Moving: true, Verdict: v}
}

// doneReply returns the reply for an update that is done. The node must also be observed at the
// target: shortly after the end the observation may lag, but a kubelet of another version is a
// failure.
func doneReply(object string, u *v1alpha1.ClusterUpdate, w workloadNode, notYet string) workloadReply {
	switch {
	case notYet == "":
		return workloadReply{Done: true}
	case strings.HasPrefix(notYet, "its kubelet"):
		return workloadReply{Failed: true, Verdict: model.Blocker{Reason: v1alpha1.ReasonStepFailed, Object: object,
			Message: fmt.Sprintf("ClusterUpdate %s is done, but node %s is not at %s: %s", u.Name, w.Node, w.Version, notYet),
			Fix:     "find out why the node returned to its old version, then delete ClusterUpdate " + u.Name + " to update it again"}}
	}
	r := waitingReply(v1alpha1.ReasonSettling, "Node/"+w.Node, "node "+w.Node+" was moved to "+w.Version+"; "+notYet, "")
	r.Moving = true
	return r
}

func phase(u *v1alpha1.ClusterUpdate) string {
	if u.Status.Phase == "" {
		return v1alpha1.PhasePlanning
	}
	return u.Status.Phase
}

// blocker returns the most important reason in an update's status.
func blocker(u *v1alpha1.ClusterUpdate) model.Blocker {
	if len(u.Status.Blockers) == 0 {
		return model.Blocker{Reason: v1alpha1.ReasonUpdating, Object: "ClusterUpdate/" + u.Name, Message: u.Status.WaitingFor, Waiting: true}
	}
	b := u.Status.Blockers[0]
	return model.Blocker{Reason: b.Reason, Object: b.Object, Message: b.Message, Fix: b.Fix, Waiting: true}
}

// deleteWorkloadUpdates deletes the updates that were created for a machine. Without all it deletes
// those that do not move its node, because another version is wanted: so a machine never has
// more than a few. With all it deletes every one, because the machine is gone.
func deleteWorkloadUpdates(ctx context.Context, c client.Client, uid string, all bool) error {
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

// unreachableCluster returns the reply for a cluster that did not answer, with a text that is the
// same for every try.
func unreachableCluster(cluster string, err error) workloadReply {
	message := "the API server of cluster " + cluster + " does not answer"
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		message = "the API server of cluster " + cluster + " refuses refit: " + string(reason)
	}
	return waitingReply(v1alpha1.ReasonClusterUnreachable, "Cluster/"+cluster, message, "")
}
