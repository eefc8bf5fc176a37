package controller

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
)

// omits reports whether an object, or a list, is of a kind that is left out. The API server has no
// such kind, and the cache would wait for it.
func omits(without areas.Set, scheme *runtime.Scheme, o runtime.Object) bool {
	if without.Empty() {
		return false
	}
	gvk, err := apiutil.GVKForObject(o, scheme)
	return err == nil && gvk.Group == v1alpha1.GroupVersion.Group && without.OmitsKind(strings.TrimSuffix(gvk.Kind, "List"))
}

// reader answers for kinds that are left out as if there were no object of them, so that what reads
// them needs not know.
type reader struct {
	client.Reader
	scheme  *runtime.Scheme
	without areas.Set
}

func (r reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if omits(r.without, r.scheme, o) {
		gvk, err := apiutil.GVKForObject(o, r.scheme)
		if err != nil {
			return err
		}
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	return r.Reader.Get(ctx, key, o, opts...)
}

func (r reader) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if omits(r.without, r.scheme, l) {
		return nil
	}
	return r.Reader.List(ctx, l, opts...)
}

// readWriter is reader for a client.
type readWriter struct {
	client.Client
	reader reader
}

func (c readWriter) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, o, opts...)
}

func (c readWriter) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, l, opts...)
}

// clientWithout makes the manager's client.
func clientWithout(without areas.Set) client.NewClientFunc {
	return func(cfg *rest.Config, o client.Options) (client.Client, error) {
		c, err := client.New(cfg, o)
		if err != nil || without.Empty() {
			return c, err
		}
		return readWriter{c, reader{c, c.Scheme(), without}}, nil
	}
}
