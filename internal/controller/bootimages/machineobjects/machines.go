package machineobjects

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many objects one list request returns.
const pageSize = 500

// Kinds lists the objects of machine kinds, each kind once per reconcile.
type Kinds struct {
	client client.Client
	Lists  map[schema.GroupKind]*Listing
	// Unread is the failure of the last List that failed; callers reset it.
	Unread error
}

// Listing is the result of listing one kind.
type Listing struct {
	Items  []*unstructured.Unstructured
	ByName map[string]*unstructured.Unstructured
	// Absent: the cluster does not serve the kind.
	Absent bool
	Err    error
}

// NewKinds returns an empty cache for one reconcile.
func NewKinds(c client.Client) *Kinds {
	return &Kinds{client: c, Lists: map[schema.GroupKind]*Listing{}}
}

// List returns all objects of a kind, in the first of the versions that the cluster serves.
func (k *Kinds) List(ctx context.Context, group, kind string, versions []string) *Listing {
	l := k.list(ctx, group, kind, versions)
	if l.Err != nil {
		k.Unread = l.Err
	}
	return l
}

func (k *Kinds) list(ctx context.Context, group, kind string, versions []string) *Listing {
	gk := schema.GroupKind{Group: group, Kind: kind}
	if l, ok := k.Lists[gk]; ok {
		return l
	}
	l := &Listing{ByName: map[string]*unstructured.Unstructured{}}
	k.Lists[gk] = l
	mapping, err := k.client.RESTMapper().RESTMapping(gk, versions...)
	switch {
	case meta.IsNoMatchError(err):
		l.Absent = true
		return l
	case err != nil:
		l.Err = fmt.Errorf("%s: %w", gk, err)
		return l
	}
	next := ""
	for {
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind + "List"))
		if err := k.client.List(ctx, u, client.Limit(pageSize), client.Continue(next)); err != nil {
			l.Err = fmt.Errorf("list %s: %w", gk, err)
			return l
		}
		for i := range u.Items {
			o := &u.Items[i]
			l.Items = append(l.Items, o)
			l.ByName[o.GetNamespace()+"/"+o.GetName()] = o
		}
		if next = u.GetContinue(); next == "" {
			return l
		}
	}
}

// Put stores the object that a write returned.
func (l *Listing) Put(o *unstructured.Unstructured) {
	key := o.GetNamespace() + "/" + o.GetName()
	if old := l.ByName[key]; old != nil {
		*old = *o
		return
	}
	l.Items, l.ByName[key] = append(l.Items, o), o
}

// SourceName returns the MachineSource name of a machine manager: kind, the first word of its
// group if it is not Cluster API's, namespace, name.
func SourceName(group, kind, namespace, name string) string {
	parts := []string{strings.ToLower(kind)}
	if !strings.HasSuffix(group, "cluster.x-k8s.io") {
		first, _, _ := strings.Cut(group, ".")
		parts = append(parts, first)
	}
	for _, p := range []string{namespace, name} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ".")
}
