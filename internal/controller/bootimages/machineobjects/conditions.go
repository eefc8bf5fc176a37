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

// FieldOwner of the condition.
const FieldOwner = "refit-boot-images-machines"

// maxMessage message of a condition and note of an event.
const maxMessage = 900

// ConditionWriter tells machines.
type ConditionWriter struct {
	Client client.Client
	Events events.EventRecorder
	Now    func() time.Time
}

// All tells every machine whose image keeps it from joining, and takes back what is
// not true any more. One that cannot be told stops no other.
func (t *ConditionWriter) All(ctx context.Context, f *Found, sources map[string]*v1alpha1.MachineSource) error {
	var errs []error
	for i := range f.Machines {
		if m := &f.Machines[i]; m.Object != nil {
			errs = append(errs, t.SetCondition(ctx, m.Object, f.Why(m, sources)))
		}
	}
	return errors.Join(errs...)
}

// SetCondition writes what is true of a machine: why it cannot join, empty if nothing is
// wrong with its image.
func (t *ConditionWriter) SetCondition(ctx context.Context, machine *unstructured.Unstructured, why string) error {
	s := shapeOf(machine)
	had := s.find(machine)
	if why == "" {
		if had == nil || !ours(machine) {
			return nil
		}
		_, err := t.apply(ctx, machine, s, nil)
		return err
	}
	why = text.Truncate(why, maxMessage)
	if said(had, why) {
		return nil
	}
	done, err := t.apply(ctx, machine, s, t.condition(s, had, why))
	if err == nil && done && t.Events != nil {
		t.Events.Eventf(machine, nil, corev1.EventTypeWarning, v1alpha1.ReasonBootImageTooOld, "Join", "%s", why)
	}
	return err
}

func said(had map[string]any, why string) bool {
	return had != nil && had["status"] == "False" && had["reason"] == v1alpha1.ReasonBootImageTooOld && had["message"] == why
}

// condition in the kind's shape, with the time since which it is false.
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

// apply says all that refit has to say of the machine: one condition or none.
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
	case apierrors.IsNotFound(err): // it is gone, and so is what is wrong with it
		return false, nil
	case noSuchField(err): // a version without such conditions
		return false, nil
	case apierrors.IsConflict(err): // somebody else writes a condition of this name: it is theirs
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write condition %s of %s %s/%s: %w", v1alpha1.ConditionMachineImage, machine.GetKind(), machine.GetNamespace(), machine.GetName(), err)
	}
	return true, nil
}

func noSuchField(err error) bool {
	return err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

// shape of conditions in a kind: where they are, and whether they have a severity.
type shape struct {
	path     []string
	severity bool
}

// shapeOf a Machine. Cluster API keeps conditions of Kubernetes' own shape in
// status.conditions since v1beta2, and beside its older ones in v1beta1.
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

// ours: refit has said something of the machine.
func ours(m *unstructured.Unstructured) bool {
	for _, f := range m.GetManagedFields() {
		if f.Manager == FieldOwner && f.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}
