package queue

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Backoff waits at most some seconds after an error: the usual error is an API server that
// is being replaced, and reconciles should continue soon after it answers.
func Backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 10*time.Second)
}

// Debounce maps every event to the one request of a controller, a moment later, so that
// many events cause one reconcile.
func Debounce(name string, later time.Duration) handler.EventHandler {
	return DebounceBy(name, func() time.Duration { return later })
}

// DebounceBy is Debounce with a delay that may grow with the cluster.
func DebounceBy(name string, later func() time.Duration) handler.EventHandler {
	type limited = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q limited) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, later())
	}
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q limited) { add(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q limited) { add(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q limited) { add(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q limited) { add(q) },
	}
}
