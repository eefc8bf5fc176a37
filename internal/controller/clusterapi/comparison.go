package clusterapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

// A hook request carries whole objects, and its answer is recorded as the claims of a
// pool. So refit compares each object with the stored one: a caller can repeat a
// request of Cluster API but cannot invent one.

// mismatch is a request that differs from what the API server stores. It names objects and
// quotes no value.
type mismatch struct{ what string }

func (m mismatch) Error() string { return m.what }

// comparison is a request with the stored objects that it is about.
type comparison struct {
	hook                hooks.Hook
	request             hooks.Request
	stored, desiredPool *unstructured.Unstructured // the machine or set, and its pool
}

// verifiedPool compares a request with the stored objects, and returns the pool of the stored
// Machine or MachineSet.
func (s *Server) verifiedPool(ctx context.Context, h hooks.Hook, r hooks.Request) (pool, error) {
	kind := kindMachine
	if h.Keys[capidiff.Machine] == "machineSet" {
		kind = kindSet
	}
	o := unstructured.Unstructured{Object: r.Current[capidiff.Machine]}
	stored, err := s.readExisting(ctx, gvk(kind), o.GetNamespace(), o.GetName())
	if err != nil {
		return pool{}, err
	}
	p := poolOf(stored)
	if p.Name == "" {
		return p, mismatch{kind + " " + stored.GetNamespace() + "/" + stored.GetName() + " does not name its pool: Cluster API's label for it is missing"}
	}
	q := comparison{hook: h, request: r, stored: stored}
	if q.desiredPool, err = s.readExisting(ctx, gvk(p.Kind), p.Namespace, p.Name); err != nil {
		return p, err
	}
	if err := s.lookUpPool(ctx, &p); err != nil {
		return p, fmt.Errorf("read the settings of %s: %w", p.String(), err)
	}
	if kind == kindSet {
		return p, s.compareSet(ctx, q)
	}
	return p, s.compareMachine(ctx, q)
}

// compareSet checks that the current set and its templates are the stored ones, and that the
// desired ones are those that the pool wants.
func (s *Server) compareSet(ctx context.Context, q comparison) error {
	for _, side := range []struct {
		name    string
		stored  *unstructured.Unstructured
		objects hooks.Objects
	}{{"current", q.stored, q.request.Current}, {"desired", q.desiredPool, q.request.Desired}} {
		if !equalSpec(q.hook, capidiff.Machine, side.stored.Object, side.objects[capidiff.Machine]) || !equalReferences(q.hook, side.stored.Object, side.objects[capidiff.Machine]) {
			return q.differs(side.name, capidiff.Machine)
		}
		for _, role := range []string{capidiff.Infrastructure, capidiff.Bootstrap} {
			o, err := s.readReferenced(ctx, q.hook, side.stored, role, side.objects[role])
			switch {
			case err != nil:
				return err
			case o == nil:
			case !equalSpec(q.hook, role, o.Object, side.objects[role]):
				return q.differs(side.name, role)
			}
		}
	}
	return nil
}

// compareMachine checks a machine of a control plane. Cluster API computes the desired objects
// of such a machine and stores none of them, so they must contain what the control plane wants.
// The current objects must contain everything that is stored.
func (s *Server) compareMachine(ctx context.Context, q comparison) error {
	current, desired := q.request.Current, q.request.Desired
	version, _, _ := unstructured.NestedString(q.desiredPool.Object, "spec", "version")
	switch {
	case !equalSpec(q.hook, capidiff.Machine, q.stored.Object, current[capidiff.Machine]):
		return q.differs("current", capidiff.Machine)
	case machine{&unstructured.Unstructured{Object: desired[capidiff.Machine]}}.version() != version:
		return q.differs("desired", capidiff.Machine)
	}
	if err := s.compareInfrastructure(ctx, q); err != nil {
		return err
	}
	return s.compareConfig(ctx, q)
}

func (s *Server) compareInfrastructure(ctx context.Context, q comparison) error {
	current, desired := q.request.Current[capidiff.Infrastructure], q.request.Desired[capidiff.Infrastructure]
	infra, err := s.readReferenced(ctx, q.hook, q.stored, capidiff.Infrastructure, current)
	if err != nil || infra == nil {
		return err
	}
	template, err := s.templateOf(ctx, q, infra)
	switch {
	case err != nil:
		return err
	case !contains(current["spec"], infra.Object["spec"]):
		return q.differs("current", capidiff.Infrastructure)
	case !contains(desired["spec"], template):
		return q.differs("desired", capidiff.Infrastructure)
	}
	return nil
}

func (s *Server) compareConfig(ctx context.Context, q comparison) error {
	current, desired := q.request.Current[capidiff.Bootstrap], q.request.Desired[capidiff.Bootstrap]
	config, err := s.readReferenced(ctx, q.hook, q.stored, capidiff.Bootstrap, current)
	if err != nil || config == nil {
		return err
	}
	wanted, _, _ := unstructured.NestedMap(q.desiredPool.Object, "spec", "kubeadmConfigSpec")
	switch {
	case !equalConfig(current["spec"], config.Object["spec"]):
		return q.differs("current", capidiff.Bootstrap)
	case !equalConfig(desired["spec"], wanted):
		return q.differs("desired", capidiff.Bootstrap)
	}
	return nil
}

func (q comparison) differs(side, role string) error {
	return mismatch{"the " + side + " " + q.hook.Keys[role] + " of the request differs from the stored object"}
}

// templateOf returns the spec that a control plane wants for the infrastructure of its
// machines.
func (s *Server) templateOf(ctx context.Context, q comparison, infra *unstructured.Unstructured) (any, error) {
	ref := reference(q.desiredPool.Object, "spec", "machineTemplate", "spec", "infrastructureRef")
	o, err := s.readExisting(ctx, schema.GroupVersionKind{Group: ref.Group, Version: infra.GroupVersionKind().Version, Kind: ref.Kind}, q.stored.GetNamespace(), ref.Name)
	if err != nil {
		return nil, err
	}
	spec, _, err := unstructured.NestedFieldNoCopy(o.Object, capidiff.SpecOfTemplate...)
	return spec, err
}

// ref is a reference to a provider's object as the v1beta2 API writes it, without the version.
type ref struct{ Group, Kind, Name string }

func reference(o map[string]any, at ...string) ref {
	text := func(field string) string {
		v, _, _ := unstructured.NestedString(o, append(slices.Clone(at), field)...)
		return v
	}
	return ref{Group: text("apiGroup"), Kind: text("kind"), Name: text("name")}
}

// referenceTo returns the reference of a machine, or of a set's template, to the object of a
// role.
func referenceTo(h hooks.Hook, o map[string]any, role string) ref {
	at := []string{"infrastructureRef"}
	if role == capidiff.Bootstrap {
		at = []string{"bootstrap", "configRef"}
	}
	return reference(o, append(slices.Clone(h.Spec), at...)...)
}

// readReferenced reads the object of a role that a stored machine, set or pool refers to, nil
// if it refers to none. The request gives the API version; group, kind and name must match the
// reference.
func (s *Server) readReferenced(ctx context.Context, h hooks.Hook, of *unstructured.Unstructured, role string, inQuestion map[string]any) (*unstructured.Unstructured, error) {
	to := referenceTo(h, of.Object, role)
	q := unstructured.Unstructured{Object: inQuestion}
	if to.Name == "" && inQuestion == nil {
		return nil, nil
	}
	if g := q.GroupVersionKind(); to.Name == "" || inQuestion == nil || to != (ref{Group: g.Group, Kind: g.Kind, Name: q.GetName()}) {
		return nil, mismatch{"the " + h.Keys[role] + " of the request is not the one that " + of.GetKind() + " " + of.GetNamespace() + "/" + of.GetName() + " refers to"}
	}
	return s.readExisting(ctx, q.GroupVersionKind(), of.GetNamespace(), to.Name)
}

// readExisting reads an object without a cache. Its errors do not repeat the API server's
// message, which may quote the request.
func (s *Server) readExisting(ctx context.Context, g schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(g)
	what := g.Kind + " " + namespace + "/" + name
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	switch {
	case err == nil:
		return o, nil
	case apierrors.IsNotFound(err):
		return nil, mismatch{what + " does not exist"}
	case apierrors.IsForbidden(err):
		s.report(ctx, "read "+what, err)
		return nil, errors.New("refit may not read " + what + ": give ServiceAccount refit-system/refit-controller the verb get on " + g.Group + " kind " + g.Kind)
	}
	s.report(ctx, "read "+what, err)
	return nil, errors.New("the API server of the management cluster failed to read " + what)
}

func equalReferences(h hooks.Hook, a, b map[string]any) bool {
	return referenceTo(h, a, capidiff.Infrastructure) == referenceTo(h, b, capidiff.Infrastructure) && referenceTo(h, a, capidiff.Bootstrap) == referenceTo(h, b, capidiff.Bootstrap)
}

// equalSpec compares the part of two objects that Cluster API compares.
func equalSpec(h hooks.Hook, role string, a, b map[string]any) bool {
	return len(capidiff.Differences(capidiff.Object{Role: role, Spec: h.Spec, Current: sameNumbers(a), Desired: sameNumbers(b)})) == 0
}

// sameNumbers decodes an object again, so that a number is equal whether it came from a client
// of the API server or from a request body.
func sameNumbers(o map[string]any) map[string]any {
	data, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	again, err := hooks.Object(data)
	if err != nil {
		return nil
	}
	return again
}

// contains reports whether have has everything that want has; empty values equal missing ones.
func contains(have, want any) bool {
	w, isMap := want.(map[string]any)
	if !isMap {
		return isEmpty(want) && isEmpty(have) || reflect.DeepEqual(sameNumbers(map[string]any{"": have}), sameNumbers(map[string]any{"": want}))
	}
	h, _ := have.(map[string]any)
	for k, v := range w {
		if !contains(h[k], v) {
			return false
		}
	}
	return true
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}

// Fields of a KubeadmConfig that Cluster API changes before it calls the hook: how a machine
// joined, and what follows from the cluster and the version.
var computed = []string{"initConfiguration", "joinConfiguration", "clusterConfiguration", "format"}

var computedOfCluster = []string{"controlPlaneEndpoint", "dns", "featureGates"}

// equalConfig compares a KubeadmConfig of a request with the stored one, except for the fields
// that Cluster API computes: those must contain what is stored.
func equalConfig(question, stored any) bool {
	q, _ := question.(map[string]any)
	st, _ := stored.(map[string]any)
	if !contains(without(q, computed), without(st, computed)) || !contains(without(st, computed), without(q, computed)) {
		return false
	}
	cluster, _ := st["clusterConfiguration"].(map[string]any)
	return contains(q["clusterConfiguration"], without(cluster, computedOfCluster))
}

func without(o map[string]any, fields []string) map[string]any {
	out := map[string]any{}
	for k, v := range o {
		if !slices.Contains(fields, k) {
			out[k] = v
		}
	}
	return out
}

// storedObjects returns the stored objects of a machine for the updaters, without status and
// server-side metadata.
func (s *Server) storedObjects(ctx context.Context, m machine, r hooks.Request) (hooks.Objects, error) {
	out := hooks.Objects{capidiff.Machine: forUpdaters(m.Unstructured)}
	for _, role := range []string{capidiff.Infrastructure, capidiff.Bootstrap} {
		o, err := s.readReferenced(ctx, hooks.UpdateMachine, m.Unstructured, role, r.Desired[role])
		if err != nil {
			return nil, err
		}
		if o != nil {
			out[role] = forUpdaters(o)
		}
	}
	return out, nil
}

func forUpdaters(o *unstructured.Unstructured) map[string]any {
	u := unstructured.Unstructured{Object: map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}}
	if spec, ok := o.Object["spec"]; ok {
		u.Object["spec"] = spec
	}
	u.SetName(o.GetName())
	u.SetNamespace(o.GetNamespace())
	u.SetLabels(o.GetLabels())
	u.SetAnnotations(o.GetAnnotations())
	return u.Object
}

// refuseMismatch answers a request that cannot be compared or differs. Cluster API calls again
// when it sees the stored objects.
func refuseMismatch(err error) hooks.Answer {
	return refusal("refit: " + strings.TrimSuffix(err.Error(), ".") + "; nothing is claimed")
}
