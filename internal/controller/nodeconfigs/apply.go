package nodeconfigs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
)

// contentRest is how long an unreferenced Content stays.
const contentRest = 10 * time.Minute

// writeNodes names every node's configuration in its NodeUpdate, after the
// Content it names. A node with a problem keeps the configuration it had.
func (r *Reconciler) writeNodes(ctx context.Context, w *configSnapshot, d *nodeTargets) error {
	var errs []error
	for i, n := range w.nodes {
		name := n.Name
		nu, want := w.reports[i], d.byNode[i]
		if nu == nil || len(want.verdicts) > 0 || nu.Spec.Config == want.name {
			continue
		}
		if err := r.content(ctx, w, want); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, ssa.Spec(ctx, r.Client, FieldOwner, ssa.Object{Kind: "NodeUpdate", Namespace: v1alpha1.NodesNamespace, Name: name, UID: string(nu.UID)},
			&v1alpha1.NodeUpdateSpec{Config: want.name}))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) content(ctx context.Context, w *configSnapshot, want *rendered) error {
	if want.name == "" || w.contents[want.name] != nil {
		return nil
	}
	c, err := ssa.MakeContent(ctx, r.Client, v1alpha1.ContentConfig, want.data)
	if err == nil {
		w.contents[want.name] = c
	}
	return err
}

func (r *Reconciler) writeStatus(ctx context.Context, w *configSnapshot, d *nodeTargets) error {
	var errs []error
	for i := range w.configs {
		c := &w.configs[i]
		st := w.status(c, d)
		if equality.Semantic.DeepEqual(c.Status, st) {
			continue
		}
		errs = append(errs, client.IgnoreNotFound(ssa.Status(ctx, r.Client, ssa.Object{Kind: "NodeConfig", Name: c.Name, UID: string(c.UID)}, &st)))
	}
	return errors.Join(errs...)
}

func (w *configSnapshot) status(c *v1alpha1.NodeConfig, d *nodeTargets) v1alpha1.NodeConfigStatus {
	st := v1alpha1.NodeConfigStatus{ObservedGeneration: c.Generation, Nodes: d.matched[c.Name], Current: d.current[c.Name]}
	st.Conditions = append(st.Conditions, c.Status.Conditions...)
	set := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: c.Generation, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second))})
	}
	reason, message, stalled := v1alpha1.ReasonAsExpected, fmt.Sprintf("%d nodes are as wanted", st.Nodes), false
	switch p := d.problem[c.Name]; {
	case p != nil:
		reason, message, stalled = p.Reason, p.Message+"; "+p.Fix, true
	case st.Current < st.Nodes:
		reason, message = v1alpha1.ReasonConfigWaiting, fmt.Sprintf("%d of %d nodes are as wanted; a ClusterUpdate brings the others there", st.Current, st.Nodes)
	case st.Nodes == 0:
		message = "no node matches"
	}
	set(v1alpha1.ConditionReady, reason == v1alpha1.ReasonAsExpected, reason, message)
	set(v1alpha1.ConditionStalled, stalled, reason, message)
	return st
}

// sweep deletes unreferenced rendered configurations. While an update runs it deletes
// none: the plan of the update refers to them.
func (r *Reconciler) sweep(ctx context.Context, w *configSnapshot, d *nodeTargets) error {
	if w.moving {
		return nil
	}
	named := map[string]bool{}
	for _, v := range d.byNode {
		named[v.name] = true
	}
	for nu := range nodeindex.AllUpdates(w.reports, w.departed) { // nodes that have left may return
		named[nu.Spec.Config] = true
		if nu.Spec.Run == nil {
			continue
		}
		for _, s := range nu.Spec.Run.Steps {
			named[s.Params[model.ParamConfig]] = true
		}
	}
	var errs []error
	for name, c := range w.contents {
		if !named[name] && w.now.Sub(c.CreationTimestamp.Time) > contentRest {
			errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, c)))
		}
	}
	return errors.Join(errs...)
}
