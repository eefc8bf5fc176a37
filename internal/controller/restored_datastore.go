package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// newestTime bounds the question for the newest resource version.
const newestTime = 30 * time.Second

// restoreAware is a source of an informer that notices a datastore which was restored from a
// copy. Resource versions count from that of the copy again. A watch that continues at a later
// one gets no event until they have passed it, and never those before.
type restoreAware struct {
	// list for the informer; source is asked for the newest resource version.
	list   toolscache.ListWithContextFunc
	source toolscache.ListerWatcherWithContext
	log    logr.Logger
	// listed is true from a list to the watch that continues it, behind from the moment at which
	// the API server was found behind to the next list.
	listed, behind atomic.Bool
}

// List remembers that the next watch continues what the API server has now.
func (r *restoreAware) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if r.behind.Load() {
		o.ResourceVersion = ""
	}
	l, err := r.list(ctx, o)
	if err == nil {
		r.listed.Store(true)
		r.behind.Store(false)
	}
	return l, err
}

// Watch fails if the API server is behind the resource version from which the watch would
// continue. The informer then lists all objects again, without that version: the API server
// would let it wait, and then refuse.
func (r *restoreAware) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil { // it starts with a list
		if r.behind.Swap(false) {
			o.ResourceVersion = ""
		}
		return r.source.WatchWithContext(ctx, o)
	}
	after := o.ResourceVersion
	if r.listed.Swap(false) || after == "" || after == "0" {
		return r.source.WatchWithContext(ctx, o)
	}
	newest, err := r.newest(ctx)
	if err != nil {
		return nil, err
	}
	if order, err := resourceversion.CompareResourceVersion(newest, after); err == nil && order < 0 {
		r.log.Info("the API server is behind what this controller has seen, as after a restore of its datastore; listing again", "seen", after, "newest", newest)
		r.behind.Store(true)
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("the newest resource version is %s, version %s was seen before: the datastore was restored", newest, after))
	}
	return r.source.WatchWithContext(ctx, o)
}

// newest asks past the API server's cache: with a limit and no resource version, the list is
// as new as the datastore.
func (r *restoreAware) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, newestTime)
	defer cancel()
	l, err := r.source.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	m, err := meta.ListAccessor(l)
	if err != nil {
		return "", err
	}
	return m.GetResourceVersion(), nil
}
