package controller

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-logr/logr"
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
// they come. All notice a restored datastore.
func (k streamedKind[T]) Informers(cfg *rest.Config, log logr.Logger) (informerFunc, error) {
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath = &k.Version, "/apis"
	errs := runtime.NewScheme() // without it the reason of an error is lost
	metav1.AddToGroupVersion(errs, schema.GroupVersion{Version: "v1"})
	c.NegotiatedSerializer = serializer.NewCodecFactory(errs).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	api, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	return func(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		from := toolscache.ToListerWatcherWithContext(lw)
		aware := &restoreAware{list: from.ListWithContext, source: from, log: log}
		both := &toolscache.ListWatch{ListWithContextFunc: aware.List, WatchFuncWithContext: aware.Watch}
		lw = toolscache.ToListWatcherWithWatchListSemantics(both, lw)
		if _, ours := of.(T); ours {
			aware.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return k.list(ctx, api, o) }
			lw = listed{both}
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

// decodeOptions read what an API server writes. It names each field once, and managed fields
// are a third of the text: no reconciler reads them, so they are passed over.
var decodeOptions = json.JoinOptions(jsontext.AllowDuplicateNames(true),
	json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *[]metav1.ManagedFieldsEntry) error { return d.SkipValue() })))

// read reads a list to its end.
func (k streamedKind[T]) read(r io.Reader) (*internalversion.List, error) {
	d, l := jsontext.NewDecoder(bufio.NewReaderSize(r, readAhead), decodeOptions), &internalversion.List{}
	if err := expect(d, jsontext.KindBeginObject); err != nil {
		return nil, err
	}
	for d.PeekKind() == jsontext.KindString {
		key, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		switch key.String() {
		case "items":
			err = k.items(d, l)
		case "metadata":
			err = json.UnmarshalDecode(d, &l.ListMeta, decodeOptions)
		default:
			err = d.SkipValue()
		}
		if err != nil {
			return nil, err
		}
	}
	if err := expect(d, jsontext.KindEndObject); err != nil {
		return nil, err
	}
	if l.ResourceVersion == "" || l.Continue != "" {
		return nil, errors.New("the answer is not a whole list")
	}
	return l, nil
}

func (k streamedKind[T]) items(d *jsontext.Decoder, l *internalversion.List) error {
	if d.PeekKind() == jsontext.KindNull { // no items at all
		return d.SkipValue()
	}
	if err := expect(d, jsontext.KindBeginArray); err != nil {
		return err
	}
	for next := d.PeekKind(); next != jsontext.KindInvalid && next != jsontext.KindEndArray; next = d.PeekKind() {
		o := k.New()
		if err := json.UnmarshalDecode(d, o, decodeOptions); err != nil {
			return fmt.Errorf("object %d: %w", len(l.Items), err)
		}
		k.Slim(o)
		l.Items = append(l.Items, o)
	}
	return expect(d, jsontext.KindEndArray)
}

// expect reads a bracket.
func expect(d *jsontext.Decoder, want jsontext.Kind) error {
	got, err := d.ReadToken()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err == nil && got.Kind() != want {
		err = fmt.Errorf("%v where %v was expected", got.Kind(), want)
	}
	return err
}
