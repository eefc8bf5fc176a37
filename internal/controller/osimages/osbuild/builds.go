package osbuild

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/text"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// Tries of a build whose surroundings fail.
	Tries = 4
	// firstRest between two of them; it doubles.
	firstRest = 10 * time.Second
	// jobEvery is how often a Job is checked.
	jobEvery = 3 * time.Second
	// atOnce is how many builds are made side by side.
	atOnce = 2
)

// Builds makes one OSBuild at a time.
type Builds struct {
	Client client.Client
	Live   client.Reader
	Over   http.RoundTripper
	// Bases finds the base of a build without a registry.
	Bases *Finder
	Now   func() time.Time
	// Tell says what becomes of builds; nil says nothing.
	Tell *EventRecorder
}

// Setup registers the reconciler with a manager.
func (r *Builds) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("osbuilds").For(&v1alpha1.OSBuild{}).
		WithOptions(controller.Options{RateLimiter: queue.Backoff(), MaxConcurrentReconciles: atOnce}).Complete(r)
}

// result of one reconcile of a build.
type result struct {
	digest    string
	platforms []string
	// manifests of the platforms, if the image is an index.
	manifests []string
	copied    int64
	// pushed is how long the push to the registry took.
	pushed time.Duration
	// packages is the digest of the image with the list of packages, "" for none.
	packages string
	// parts is the Content with what an image has that goes to the nodes.
	parts string
	// waits: look again then; status may have changed. because says for what, if it is
	// not the builder.
	waits   time.Duration
	because string
	// user is a fault of the user's inputs, surroundings one of the environment; log is the
	// end of the output.
	user, surroundings string
}

// Reconcile makes a build, or looks how far it is.
func (r *Builds) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.OSBuild{}
	if err := r.Live.Get(ctx, req.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !b.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // Job and ConfigMap go with it
	}
	if osimage.Phase(b.Status.Phase).Ended() {
		return ctrl.Result{}, r.cleanUp(ctx, b)
	}
	st := b.Status.DeepCopy()
	if st.Phase != v1alpha1.BuildBuilding {
		markStarted(st, r.Now())
		if err := r.write(ctx, b, st); err != nil {
			return ctrl.Result{}, err
		}
		b.Status = *st.DeepCopy()
	}
	got, err := r.build(ctx, b, st)
	if err != nil {
		return ctrl.Result{}, err
	}
	wait := r.applyResult(st, got)
	if err := r.write(ctx, b, st); err != nil {
		return ctrl.Result{}, err
	}
	if got.digest != "" && b.Spec.Output != v1alpha1.OutputNodes {
		r.Tell.Pushed(b, got.pushed)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// applyResult turns a result into a status, and says when to look again.
func (r *Builds) applyResult(st *v1alpha1.OSBuildStatus, got result) time.Duration {
	now := r.Now()
	switch {
	case got.digest != "":
		st.Digest, st.Parts, st.Platforms, st.Manifests, st.Copied, st.Log = got.digest, got.parts, got.platforms, got.manifests, got.copied, ""
		markFinished(st, v1alpha1.BuildSucceeded, v1alpha1.ReasonAsExpected, "the image is "+got.digest, now)
	case got.user != "":
		st.Log = text.Truncate(got.user, 8000)
		markFinished(st, v1alpha1.BuildFailed, v1alpha1.ReasonImageBuildFailed, text.Truncate(got.user, 2000), now)
	case got.surroundings != "":
		st.Attempts++
		st.Log = text.Truncate(got.surroundings, 8000)
		if st.Attempts < Tries {
			return firstRest << (st.Attempts - 1)
		}
		markFinished(st, v1alpha1.BuildFailed, v1alpha1.ReasonImageBuildFailed, fmt.Sprintf("given up after %d tries: %s", st.Attempts, text.Truncate(got.surroundings, 2000)), now)
	}
	if got.because != "" {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.BuildBuilding, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOSBaseNotPinned, Message: text.Truncate(got.because, 2000), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))})
	}
	return got.waits
}

func (r *Builds) build(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus) (result, error) {
	var o v1alpha1.OSImage
	err := r.Live.Get(ctx, client.ObjectKey{Name: b.Spec.OSImage}, &o)
	if apierrors.IsNotFound(err) || err == nil && string(o.UID) != b.Spec.OSImageUID {
		return result{user: "its OSImage " + b.Spec.OSImage + " is gone"}, nil
	}
	if err != nil {
		return result{}, err
	}
	m, got, err := r.materials(ctx, b, &o)
	if err != nil || got.user != "" {
		return got, err
	}
	got, err = r.run(ctx, b, st, &o, m)
	if err == nil && got.digest != "" {
		err = r.packages(ctx, b, st, &o, m, got)
	}
	return got, err
}

// run the builder.
func (r *Builds) run(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage, m materials) (result, error) {
	switch {
	case b.Spec.Output == v1alpha1.OutputNodes:
		return r.forNodes(ctx, b, m)
	case b.Spec.Builder == string(osimage.Containerfile):
		return r.containerfile(ctx, b, st, o, m)
	}
	return r.append(ctx, b, m, b.Spec.Repository, b.Name)
}

func markStarted(st *v1alpha1.OSBuildStatus, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	if st.StartedAt == nil {
		st.StartedAt = &at
	}
	st.Phase = v1alpha1.BuildBuilding
	for _, kind := range []string{v1alpha1.BuildPrepared, v1alpha1.BuildBuilding} {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonImageBuilding, Message: "the inputs are complete; it is being built", LastTransitionTime: at})
	}
}

func markFinished(st *v1alpha1.OSBuildStatus, phase, reason, message string, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	if st.StartedAt == nil {
		st.StartedAt = &at
	}
	if at.Before(st.StartedAt) {
		at = *st.StartedAt
	}
	st.Phase, st.FinishedAt = phase, &at
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.BuildBuilding, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: at})
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: phase, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: at})
}

// registryResult sorts failures of a registry: a person has to fix what it denies or does not
// have; an unreachable registry is transient.
func registryResult(what string, err error) result {
	if isTransientFailure(err) {
		return result{surroundings: what + ": " + err.Error()}
	}
	return result{user: what + ": " + err.Error()}
}

func isTransientFailure(err error) bool {
	var f *registry.Failure
	if errors.As(err, &f) {
		return f.Kind == registry.Unreachable || f.Kind == registry.RateLimited
	}
	var said *transport.Error
	if errors.As(err, &said) {
		return said.StatusCode >= 500 || said.StatusCode == http.StatusTooManyRequests
	}
	var network net.Error
	var address *url.Error
	return errors.As(err, &network) || errors.As(err, &address) || errors.Is(err, context.DeadlineExceeded)
}
