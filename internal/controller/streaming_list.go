package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// readAhead is how much of an answer is taken from the connection at once.
const readAhead = 256 << 10

// streamedKind of objects that are read as they come. T is the object, as JSON decodes it.
type streamedKind[T runtime.Object] struct {
	// Version and Resource, as in the server's paths, and their Namespace.
	Version             schema.GroupVersion
	Resource, Namespace string
	// New makes an empty object.
	New func() T
	// Slim drops fields that no reconciler reads.
	Slim func(T)
}

// informerFunc is what a cache makes informers with.
type informerFunc = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Informers makes the informers of a cache: those of the kind read their lists as
// they come, all others are the usual ones.
func (k streamedKind[T]) Informers(cfg *rest.Config) (informerFunc, error) {
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath = &k.Version, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	api, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	return func(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ours := of.(T); ours {
			lw = listed{&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return k.list(ctx, api, o)
				},
				WatchFuncWithContext: toolscache.ToListerWatcherWithContext(lw).WatchWithContext,
			}}
		}
		return toolscache.NewSharedIndexInformer(lw, of, resync, by)
	}, nil
}

// listed is not asked for what is there as one event for each object.
type listed struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func (k streamedKind[T]) list(ctx context.Context, api rest.Interface, o metav1.ListOptions) (runtime.Object, error) {
	o.Limit, o.Continue = 0, "" // there is nothing to save by pages
	body, err := api.Get().NamespaceIfScoped(k.Namespace, k.Namespace != "").Resource(k.Resource).
		SpecificallyVersionedParams(&o, clientgoscheme.ParameterCodec, metav1.Unversioned).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	l, err := k.read(body)
	if err != nil {
		return nil, fmt.Errorf("read the list of %s: %w", k.Resource, err)
	}
	return l, nil
}

// read reads a list to its end.
func (k streamedKind[T]) read(r io.Reader) (*internalversion.List, error) {
	d, l := json.NewDecoder(newManagedFieldsFilter(r)), &internalversion.List{}
	if err := expectDelim(d, json.Delim('{')); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch key {
		case "items":
			err = k.items(d, l)
		case "metadata":
			err = d.Decode(&l.ListMeta)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return nil, err
		}
	}
	if err := expectDelim(d, json.Delim('}')); err != nil {
		return nil, err
	}
	if l.ResourceVersion == "" || l.Continue != "" {
		return nil, errors.New("the answer is not a whole list")
	}
	return l, nil
}

func (k streamedKind[T]) items(d *json.Decoder, l *internalversion.List) error {
	first, err := d.Token()
	if err != nil || first == nil { // no items at all
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("items begin with %v", first)
	}
	for d.More() {
		o := k.New()
		if err := d.Decode(o); err != nil {
			return fmt.Errorf("object %d: %w", len(l.Items), err)
		}
		k.Slim(o)
		l.Items = append(l.Items, o)
	}
	return expectDelim(d, json.Delim(']'))
}

func expectDelim(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err == nil && got != want {
		err = fmt.Errorf("%v where %v was expected", got, want)
	}
	return err
}
