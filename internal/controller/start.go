package controller

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
)

// apiRetryInterval is how long to wait before an API server that does not answer is
// asked again at the start.
const apiRetryInterval = 2 * time.Second

// waitForAPI waits until the API server serves refit's kinds: the controller
// may start while its own control-plane node is being moved.
func waitForAPI(ctx context.Context, cfg *rest.Config, o Options, health *probeServer) error {
	said := ""
	for {
		err := probe(ctx, cfg, o.Without)
		if err == nil {
			health.Waiting("the controller reads what is in the API server")
			return nil
		}
		health.Waiting("waiting for the API server: " + err.Error())
		if err.Error() != said {
			said = err.Error()
			o.Log.Info("waiting for the API server", "error", said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(apiRetryInterval):
		}
	}
}

// probe asks for one object of each kind, all at once: the answers take longer than the
// questions.
func probe(ctx context.Context, cfg *rest.Config, without areas.Set) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	short := rest.CopyConfig(cfg)
	short.Timeout = 10 * time.Second
	c, err := client.New(short, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	kinds := watchedKinds(scheme, without)
	errs := make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, o := range kinds {
		wg.Go(func() { errs[i] = probeKind(ctx, c, o) })
	}
	wg.Wait()
	return firstError(errs)
}

func probeKind(ctx context.Context, c client.Client, o client.Object) error {
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return c.List(ctx, l, client.Limit(1), client.InNamespace(v1alpha1.NodesNamespace))
}

// firstError is one error of many that say the same.
func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// watchedKinds are refit's kinds, but for those that are left out.
func watchedKinds(scheme *runtime.Scheme, without areas.Set) []client.Object {
	all := []client.Object{&v1alpha1.Bundle{}, &v1alpha1.TrustPolicy{}, &v1alpha1.PinnedImageSet{}, &v1alpha1.UpdatePool{}, &v1alpha1.ClusterUpdate{}, &v1alpha1.NodeConfig{}, &v1alpha1.ImageTrack{}, &v1alpha1.Updater{}, &v1alpha1.BootImageStream{}, &v1alpha1.BootImagePolicy{}, &v1alpha1.MachineSource{}, &v1alpha1.OSImage{}, &v1alpha1.OSBuild{}, &v1alpha1.NodeUpdate{}, &v1alpha1.Content{}}
	return slices.DeleteFunc(all, func(o client.Object) bool { return omits(without, scheme, o) })
}

// prepareStart adds what happens before the first decision. A controller is ready when its caches
// are filled.
func prepareStart(ctx context.Context, mgr ctrl.Manager, health *probeServer, kinds []client.Object) error {
	if err := readTogether(ctx, mgr.GetCache(), kinds); err != nil {
		return err
	}
	settle := growToLimit()
	// What is not for the leader alone starts when the caches are filled.
	return mgr.Add(everyReplica(func(context.Context) error { health.Waiting(""); settle(); return nil }))
}

// readTogether makes a cache read all kinds when it starts. A kind that is first asked for in a
// reconcile makes that wait for a list of its own, one kind after the other.
func readTogether(ctx context.Context, c cache.Cache, kinds []client.Object) error {
	for _, o := range kinds {
		if _, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return nil
}

// firstLook is how long after its start a controller has made its first decisions.
const firstLook = 10 * time.Second

// growToLimit lets the memory grow up to GOMEMLIMIT, if that is set, until settle has been
// called for firstLook. While the caches fill nearly all that is allocated stays: to look for
// garbage at each doubling takes processor time from the first decision.
func growToLimit() (settle func()) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		return func() {}
	}
	percent := debug.SetGCPercent(-1)
	if percent < 0 { // as a user wants it, or as another controller of this process has set it
		return func() {}
	}
	return func() { time.AfterFunc(firstLook, func() { debug.SetGCPercent(percent) }) }
}
