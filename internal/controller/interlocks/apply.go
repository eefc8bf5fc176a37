package interlocks

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// budgetsField is where a NodePool says how many nodes Karpenter may disrupt.
const budgetsField = "spec.disruption.budgets"

// HoldNode pauses the autoscalers of a node that is about to be marked. It changes the
// object only: the caller writes it, together with the mark.
func HoldNode(n *corev1.Node, by string) {
	n.Annotations, _ = hold(n.Annotations, by, wants(n.Labels[nodePoolLabel]))
}

// ReleaseNode undoes HoldNode; the caller writes the object.
func ReleaseNode(n *corev1.Node) { n.Annotations, _ = restore(n.Annotations) }

// changeObject reads an object from the API server, changes it, and writes it if it is
// still what was read. An object that is gone is nothing to change.
func (r *Reconciler) changeObject(ctx context.Context, o client.Object, key client.ObjectKey, how func(client.Object) bool) error {
	if err := r.Live.Get(ctx, key, o); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok || !how(o) {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerController)))
}

func (r *Reconciler) runAction(ctx context.Context, a Action, in Input) error {
	var err error
	switch a.Kind {
	case KindNode:
		err = r.changeObject(ctx, &corev1.Node{}, client.ObjectKey{Name: a.Key}, func(o client.Object) bool { return nodeAction(o, a, in.Running) })
	case KindMachine:
		ns, name, _ := strings.Cut(a.Key, "/")
		err = r.changeKind(ctx, machineKind, client.ObjectKey{Namespace: ns, Name: name}, func(o client.Object) bool { return machineAction(o, a, in.Now) })
	case KindNodePool:
		err = r.changeKind(ctx, nodePoolKind, client.ObjectKey{Name: a.Key}, func(o client.Object) bool { return nodePoolAction(o, a) })
	}
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", a.Verb, a.Kind, a.Key, err)
	}
	return nil
}

func nodeAction(o client.Object, a Action, running map[string]bool) bool {
	var changed bool
	annotations := o.GetAnnotations()
	mark := markedBy(annotations)
	if a.Verb == VerbHold {
		if mark != a.By {
			return false // it is done by now
		}
		annotations, changed = hold(annotations, a.By, wants(o.GetLabels()[nodePoolLabel]))
	} else {
		if running[mark] {
			return false // the next update has it by now
		}
		annotations, changed = restore(annotations)
	}
	o.SetAnnotations(annotations)
	return changed
}

// machineAction marks a Machine, renews its mark, or takes it off. A Machine
// that a person has marked is left alone.
func machineAction(o client.Object, a Action, now time.Time) bool {
	if a.Verb == VerbRestore {
		return release(o)
	}
	u, ok := o.(*unstructured.Unstructured)
	if node, _, _ := unstructured.NestedString(u.Object, "status", "nodeRef", "name"); !ok || node != a.Node {
		return false // a Machine of that name, but of another node
	}
	annotations, _ := hold(o.GetAnnotations(), a.By, map[string]string{skipRemediation: ""})
	if len(records(annotations)) == 0 {
		return false
	}
	annotations[v1alpha1.AnnotationInterlockUntil] = now.Add(heldFor).UTC().Format(time.RFC3339)
	o.SetAnnotations(annotations)
	setLabel(o, true)
	return true
}

// release restores the annotations of an object and takes our label off.
func release(o client.Object) bool {
	annotations, changed := restore(o.GetAnnotations())
	o.SetAnnotations(annotations)
	return setLabel(o, false) || changed
}

func setLabel(o client.Object, on bool) (changed bool) {
	l := o.GetLabels()
	if _, has := l[v1alpha1.LabelInterlock]; has == on {
		return false
	}
	if l == nil {
		l = map[string]string{}
	}
	if on {
		l[v1alpha1.LabelInterlock] = "true"
	} else {
		delete(l, v1alpha1.LabelInterlock)
	}
	o.SetLabels(l)
	return true
}

// nodePoolAction adds a budget of no node to a NodePool, or takes it out.
func nodePoolAction(o client.Object, a Action) bool {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	if a.Verb == VerbRestore {
		restoreBudgets(u)
		return release(u)
	}
	annotations := u.GetAnnotations()
	rs := records(annotations)
	if old, held := rs[budgetsField]; held {
		if old.By == a.By {
			return false
		}
		old.By = a.By
		rs[budgetsField] = old
	} else {
		before, found, err := unstructured.NestedSlice(u.Object, "spec", "disruption", "budgets")
		if err != nil || contains(before, zeroBudget()) {
			return false // not what we know, or a person holds it already
		}
		set := append(append([]any{}, before...), zeroBudget())
		r := Record{By: a.By, Set: text(set)}
		if found {
			b := text(before)
			r.Before = &b
		}
		if err := unstructured.SetNestedSlice(u.Object, set, "spec", "disruption", "budgets"); err != nil {
			return false
		}
		rs[budgetsField] = r
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	write(annotations, rs)
	u.SetAnnotations(annotations)
	setLabel(u, true)
	return true
}

// zeroBudget lets Karpenter disrupt no node, for no reason.
func zeroBudget() map[string]any { return map[string]any{"nodes": "0"} }

// restoreBudgets restores the budgets. If they changed meanwhile, it removes only refit's
// entry.
func restoreBudgets(u *unstructured.Unstructured) {
	r, held := records(u.GetAnnotations())[budgetsField]
	if !held {
		return
	}
	now, _, err := unstructured.NestedSlice(u.Object, "spec", "disruption", "budgets")
	if err != nil {
		return
	}
	var back []any
	switch {
	case text(now) == r.Set && r.Before == nil:
		unstructured.RemoveNestedField(u.Object, "spec", "disruption", "budgets")
		return
	case text(now) == r.Set:
		if json.Unmarshal([]byte(*r.Before), &back) != nil {
			return
		}
	case contains(now, zeroBudget()):
		back = removeFirst(now, zeroBudget())
	default:
		return
	}
	_ = unstructured.SetNestedSlice(u.Object, back, "spec", "disruption", "budgets") // values of JSON only
}

func contains(list []any, what map[string]any) bool {
	for _, x := range list {
		if reflect.DeepEqual(x, any(what)) {
			return true
		}
	}
	return false
}

// removeFirst is a list without the first entry like what.
func removeFirst(list []any, what map[string]any) []any {
	out := []any{}
	gone := false
	for _, x := range list {
		if !gone && reflect.DeepEqual(x, any(what)) {
			gone = true
			continue
		}
		out = append(out, x)
	}
	return out
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // values of JSON only
	}
	return string(b)
}
