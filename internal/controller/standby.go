package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/model"
)

const (
	// StandbyInterval is the time between two looks for a node that can take the second controller.
	StandbyInterval = 5 * time.Second
	// maxStandbyNodes is how many nodes get the label that the Deployment prefers.
	maxStandbyNodes = 3
	// replicasWithStandby are one that leads and one that stands by.
	replicasWithStandby = 2
)

// standbyStarter starts the second controller when a second node has refit's image.
//
// An installation from a bundle begins with one controller, on a node that loaded the image by
// hand. No registry has the image, so a second pod would ask for it in vain. refit install marks
// the pods (v1alpha1.AnnotationStandby). When another node that can take the pod has pinned the
// image from a bundle, the leader labels that node and scales its Deployment to two. It never
// scales down. Its only right to the Deployment is the number of replicas.
type standbyStarter struct {
	Client client.Client
	// Live reads the controller's own pod.
	Live  client.Reader
	Nodes *nodeindex.Reader
	// Pod is the name of the controller's own pod; empty outside of a pod.
	Pod string
}

// NeedLeaderElection is true: one process scales.
func (*standbyStarter) NeedLeaderElection() bool { return true }

// Start looks for a node until the second controller is asked for, or none is wanted.
func (s *standbyStarter) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("standby")
	logged := ""
	for {
		done, err := s.start(ctx, log)
		if done {
			return nil
		}
		if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != logged {
			logged = text
			log.Info("failed to start the second controller, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(StandbyInterval):
		}
	}
}

// start returns true when there is nothing left to do.
func (s *standbyStarter) start(ctx context.Context, log logr.Logger) (bool, error) {
	if s.Pod == "" {
		return true, nil
	}
	var own corev1.Pod
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: s.Pod}, &own)
	if apierrors.IsNotFound(err) { // a process outside of a pod
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the controller's own pod: %w", err)
	}
	if own.Annotations[v1alpha1.AnnotationStandby] != v1alpha1.StandbyWhenImagePresent {
		return true, nil
	}
	if !s.Nodes.Synced() {
		return false, nil
	}
	nodes, err := s.holders(ctx, &own)
	if err != nil || len(nodes) == 0 {
		return false, err
	}
	return s.scale(ctx, log, nodes)
}

// holders returns nodes that have the image of the pod and can take another pod like it, control
// planes first.
func (s *standbyStarter) holders(ctx context.Context, own *corev1.Pod) ([]*corev1.Node, error) {
	view := s.Nodes.Refresh()
	holds := map[string]bool{} // by the name of the Content
	var out []*corev1.Node
	for i, n := range view.Nodes {
		nu := view.Reports[i]
		if nu == nil || n.Name == own.Spec.NodeName || !canTake(n, own) {
			continue
		}
		whole := pinnedAll(nu)
		if whole == "" {
			continue
		}
		has, known := holds[whole]
		if !known {
			var err error
			if has, err = s.listHasImage(ctx, whole, own); err != nil {
				return nil, err
			}
			holds[whole] = has
		}
		if has {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b *corev1.Node) int { return rank(a) - rank(b) })
	return out[:min(len(out), maxStandbyNodes)], nil
}

func rank(n *corev1.Node) int {
	if _, ok := n.Labels["node-role.kubernetes.io/control-plane"]; ok {
		return 0
	}
	return 1
}

// canTake reports whether a node is Ready and the pod tolerates its taints.
func canTake(n *corev1.Node, pod *corev1.Pod) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.ToleratesTaint(logr.Discard(), &t, false)
		})
	})
}

// pinnedAll returns the name of a node's pin list if the node has pinned all of it from bundles, "" else.
func pinnedAll(nu *v1alpha1.NodeUpdate) string {
	p := nu.Status.Pins
	if p == nil || p.Content != nu.Spec.Pins || p.ImagesTotal == 0 || p.ImagesPinned < p.ImagesTotal {
		return ""
	}
	return p.Content
}

// listHasImage reports whether a pin list has an image of the pod, from a bundle.
func (s *standbyStarter) listHasImage(ctx context.Context, name string, own *corev1.Pod) (bool, error) {
	var c v1alpha1.Content
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	var list model.PinSet
	if v1alpha1.ContentName(v1alpha1.ContentPins, c.Data) != name || json.Unmarshal([]byte(c.Data), &list) != nil {
		return false, fmt.Errorf("content %s is not what its name says", name)
	}
	return slices.ContainsFunc(list.Images, func(i model.PinSetImage) bool {
		return !i.Registry && slices.ContainsFunc(own.Spec.Containers, func(c corev1.Container) bool { return c.Image == i.Name })
	}), nil
}

// scale labels the nodes, so that the second pod goes to one of them, and asks for it.
func (s *standbyStarter) scale(ctx context.Context, log logr.Logger, nodes []*corev1.Node) (bool, error) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerDeployment}}
	now := &autoscalingv1.Scale{}
	if err := s.Client.SubResource("scale").Get(ctx, d, now); err != nil {
		return false, fmt.Errorf("read the scale of Deployment %s: %w", d.Name, err)
	}
	if now.Spec.Replicas >= replicasWithStandby {
		return true, nil
	}
	var names []string
	for _, n := range nodes {
		change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+v1alpha1.LabelFirstContact+`":""}}}`))
		if err := s.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, change, client.FieldOwner(v1alpha1.FieldOwnerController)); err != nil {
			return false, fmt.Errorf("label node %s: %w", n.Name, err)
		}
		names = append(names, n.Name)
	}
	now.Spec.Replicas = replicasWithStandby
	if err := s.Client.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(now), client.FieldOwner(v1alpha1.FieldOwnerController)); err != nil {
		return false, fmt.Errorf("scale Deployment %s: %w", d.Name, err)
	}
	log.Info("second controller requested: more nodes have refit's image", "nodes", names)
	return true, nil
}
