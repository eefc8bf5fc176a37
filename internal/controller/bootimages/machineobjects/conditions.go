package machineobjects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// FieldOwner is the field manager of the condition.
const FieldOwner = "refit-boot-images-machines"

// maxMessage is the length of a condition's message and an event's note.
const maxMessage = 900

// ConditionWriter writes refit's condition on Machines.
type ConditionWriter struct {
	Client client.Client
	Events events.EventRecorder
	Now    func() time.Time
}

// WriteAll sets the condition on every machine whose image keeps it from joining, and removes
// it where that is no longer true. A failure on one machine does not stop the others.
func (t *ConditionWriter) WriteAll(ctx context.Context, f *Inventory, sources map[string]*v1alpha1.MachineSource) error {
	var errs []error
	for i := range f.Machines {
		if m := &f.Machines[i]; m.Object != nil {
			errs = append(errs, t.SetCondition(ctx, m.Object, f.JoinProblem(m, sources)))
		}
	}
	return errors.Join(errs...)
}

// SetCondition writes why a machine cannot join; empty removes the condition.
func (t *ConditionWriter) SetCondition(ctx context.Context, machine *unstructured.Unstructured, why string) error {
	s := shapeOf(machine)
	had := s.find(machine)
	if why == "" {
		if had == nil || !hasOwnCondition(machine) {
			return nil
		}
		_, err := t.apply(ctx, machine, s, nil)
		return err
	}
	why = text.Truncate(why, maxMessage)
	if isUnchanged(had, why) {
		return nil
	}
	done, err := t.apply(ctx, machine, s, t.condition(s, had, why))
	if err == nil && done && t.Events != nil {
		t.Events.Eventf(machine, nil, corev1.EventTypeWarning, v1alpha1.ReasonBootImageTooOld, "Join", "%s", why)
	}
	return err
}

func isUnchanged(had map[string]any, why string) bool {
	return had != nil && had["status"] == "False" && had["reason"] == v1alpha1.ReasonBootImageTooOld && had["message"] == why
}

// condition returns the condition in the kind's shape, with the time since which it is false.
func (t *ConditionWriter) condition(s shape, had map[string]any, why string) map[string]any {
	c := map[string]any{"type": v1alpha1.ConditionMachineImage, "status": "False", "reason": v1alpha1.ReasonBootImageTooOld, "message": why,
		"lastTransitionTime": t.Now().UTC().Format(time.RFC3339)}
	if since, ok := had["lastTransitionTime"].(string); ok && had["status"] == "False" {
		c["lastTransitionTime"] = since
	}
	if s.severity {
		c["severity"] = "Warning"
	}
	return c
}

// apply applies refit's whole share of the machine's status: one condition or none.
func (t *ConditionWriter) apply(ctx context.Context, machine *unstructured.Unstructured, s shape, condition map[string]any) (done bool, err error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(machine.GroupVersionKind())
	u.SetNamespace(machine.GetNamespace())
	u.SetName(machine.GetName())
	u.SetUID(machine.GetUID())
	if condition != nil {
		if err := unstructured.SetNestedSlice(u.Object, []any{condition}, s.path...); err != nil {
			return false, err
		}
	}
	err = t.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldOwner))
	switch {
	case apierrors.IsNotFound(err): // the machine was deleted
		return false, nil
	case noSuchField(err): // this API version has no such conditions
		return false, nil
	case apierrors.IsConflict(err): // another field manager owns a condition of this name
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write condition %s of %s %s/%s: %w", v1alpha1.ConditionMachineImage, machine.GetKind(), machine.GetNamespace(), machine.GetName(), err)
	}
	return true, nil
}

func noSuchField(err error) bool {
	return err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

// shape is where a kind has its conditions, and whether they have a severity.
type shape struct {
	path     []string
	severity bool
}

// shapeOf returns the shape for a Machine. Cluster API has Kubernetes conditions in
// status.conditions since v1beta2; in v1beta1 they are in status.v1beta2.conditions, next to
// the older ones.
func shapeOf(m *unstructured.Unstructured) shape {
	gv := m.GroupVersionKind()
	switch {
	case gv.Group == "machine.openshift.io":
		return shape{[]string{"status", "conditions"}, true}
	case gv.Version == "v1beta1":
		return shape{[]string{"status", "v1beta2", "conditions"}, false}
	}
	return shape{[]string{"status", "conditions"}, false}
}

func (s shape) find(m *unstructured.Unstructured) map[string]any {
	list, _, _ := unstructured.NestedSlice(m.Object, s.path...)
	for _, c := range list {
		if o, ok := c.(map[string]any); ok && o["type"] == v1alpha1.ConditionMachineImage {
			return o
		}
	}
	return nil
}

// hasOwnCondition reports whether refit has applied a condition to the machine.
func hasOwnCondition(m *unstructured.Unstructured) bool {
	for _, f := range m.GetManagedFields() {
		if f.Manager == FieldOwner && f.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}
