package machineobjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/bootimage"
)

// IsCanary reports whether refit created a machine manager for one machine that tries an image.
func IsCanary(o *unstructured.Unstructured) bool {
	_, ok := bootimage.CanarySource(o.Object)
	return ok
}

// Observe adds what is known about a canary's manager, and about its machine.
func (f *Inventory) Observe(c *bootimage.Canary, manager *unstructured.Unstructured, source string) {
	c.Started, c.Unread = manager.GetCreationTimestamp().Time, f.Unread
	for i := range f.Machines {
		m := &f.Machines[i]
		if m.Object == nil || !slices.Contains(m.Sources, source) || m.Object.GetDeletionTimestamp() != nil {
			continue
		}
		c.Machine, c.Failed = m.Object.GetNamespace()+"/"+m.Object.GetName(), m.RefusalMessage(f.Refusals)
		if c.Failed == "" {
			c.Failed = terminalFailure(m.Object)
		}
		c.ReadySince, c.Installed, c.Node = m.ReadySince, m.Installed, m.Node
	}
}

// terminalFailure returns why a Machine will not become Ready, as its controllers report it.
func terminalFailure(o *unstructured.Unstructured) string {
	if stringField(o, "status", "phase") == "Failed" {
		for _, at := range [][]string{{"status", "failureMessage"}, {"status", "errorMessage"}, {"status", "deprecated", "v1beta1", "failureMessage"}} {
			if s := stringField(o, at...); s != "" {
				return "it failed: " + s
			}
		}
		return "it failed"
	}
	if c := conditionOf(o, "HealthCheckSucceeded"); c["status"] == "False" {
		message, _ := c["message"].(string)
		return "its health check failed: " + message
	}
	return ""
}

// readySince returns since when a machine's node is Ready, zero if it is not, and the OS version
// that it was installed from.
func (r *machineReader) readySince(node string, machine *unstructured.Unstructured) (time.Time, string) {
	if n, ok := r.byName[node]; ok {
		return n.ReadySince, n.Installed
	}
	c := conditionOf(machine, "NodeReady")
	at, _ := c["lastTransitionTime"].(string)
	since, err := time.Parse(time.RFC3339, at)
	if c["status"] != "True" || err != nil {
		return time.Time{}, ""
	}
	return since, ""
}

// conditionOf returns a condition of a Machine, nil if it has none of the type.
func conditionOf(o *unstructured.Unstructured, kind string) map[string]any {
	for _, path := range [][]string{{"status", "conditions"}, {"status", "v1beta2", "conditions"}} {
		list, _, _ := unstructured.NestedSlice(o.Object, path...)
		for _, c := range list {
			if m, ok := c.(map[string]any); ok && m["type"] == kind {
				return m
			}
		}
	}
	return nil
}

// CreateCanary creates the temporary manager unless it exists. An object of this name that refit
// did not create for the source is an error.
func CreateCanary(ctx context.Context, c client.Client, l *Listing, content map[string]any, owner string) error {
	o := &unstructured.Unstructured{Object: content}
	want, _ := bootimage.CanarySource(content)
	err := c.Create(ctx, o, client.FieldOwner(owner))
	if apierrors.IsAlreadyExists(err) {
		there := &unstructured.Unstructured{}
		there.SetGroupVersionKind(o.GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
			return fmt.Errorf("read canary %s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
		if source, ours := bootimage.CanarySource(there.Object); !ours || source != want || there.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%s %s/%s exists and is not this canary: refit does not change it", o.GetKind(), o.GetNamespace(), o.GetName())
		}
		l.Put(there)
		return nil
	}
	if err != nil {
		return fmt.Errorf("create canary %s %s/%s (rights are in config/boot-images/access.yaml): %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	l.Put(o)
	return nil
}

// DeleteCanaries deletes the canaries that are not needed; needed has namespace/name.
func (k *Kinds) DeleteCanaries(ctx context.Context, needed map[string]bool) error {
	var errs []error
	for _, l := range k.Lists {
		for _, o := range l.Items {
			if !IsCanary(o) || needed[o.GetNamespace()+"/"+o.GetName()] || o.GetDeletionTimestamp() != nil {
				continue
			}
			uid, version := o.GetUID(), o.GetResourceVersion()
			if err := k.client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				errs = append(errs, fmt.Errorf("delete canary %s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err))
			}
		}
	}
	return errors.Join(errs...)
}
