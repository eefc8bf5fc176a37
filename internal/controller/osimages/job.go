package osimages

import (
	"context"
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/source/osimage"
	"github.com/refit-dev/refit/internal/source/osimage/buildjob"
)

// containerfile makes the Job of a build, or looks how far it is. The base with the
// configuration is appended first: the user's text comes from that.
func (r *Builds) containerfile(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage, m materials) (result, error) {
	if o.Spec.Build == nil {
		return result{user: "spec.build.image does not say with which image it is built"}, nil
	}
	var job batchv1.Job
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: b.Name}, &job)
	if apierrors.IsNotFound(err) {
		return r.start(ctx, b, st, o, m)
	}
	if err != nil {
		return result{}, err
	}
	if !metav1.IsControlledBy(&job, b) {
		return result{waits: jobEvery}, nil // of a build of the same name that was deleted: it goes
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{v1alpha1.LabelOSBuild: label(b.Name)}); err != nil {
		return result{}, err
	}
	return r.outcome(ctx, &job, pods.Items, b, st)
}

func (r *Builds) outcome(ctx context.Context, job *batchv1.Job, pods []corev1.Pod, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus) (result, error) {
	out := buildjob.Look(job, slices.Clone(pods))
	st.Attempts, st.Log = out.Tries, out.Log
	switch {
	case !out.Over:
		return result{waits: jobEvery}, nil
	case out.Digest != "":
		return result{digest: out.Digest, platforms: b.Spec.Platforms}, nil
	case out.Fault == buildjob.Namespaces && len(st.Tried) < len(buildjob.Variants):
		// Another kind of pod may build. What was tried is written down before the Job
		// goes, so that it is not tried for ever.
		if !slices.Contains(st.Tried, st.Variant) {
			st.Tried = append(st.Tried, st.Variant)
			return result{waits: jobEvery}, nil
		}
		return result{waits: jobEvery}, r.deleteJob(ctx, job)
	case out.Fault == buildjob.User:
		return result{user: out.Log}, nil
	}
	st.Attempts = tries // the Job has made its tries
	return result{surroundings: out.Log}, nil
}

func (r *Builds) deleteJob(ctx context.Context, job *batchv1.Job) error {
	return client.IgnoreNotFound(r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID}))
}

func (r *Builds) start(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage, m materials) (result, error) {
	facts, err := r.facts(ctx, o.Spec.Build.NodeSelector)
	if err != nil {
		return result{}, err
	}
	var tried []buildjob.Variant
	for _, v := range st.Tried {
		tried = append(tried, buildjob.Variant(v))
	}
	choice, err := buildjob.Pick(facts, tried)
	if err != nil {
		return result{user: err.Error()}, nil //nolint:nilerr // it is the build's result
	}
	got, err := r.append(ctx, b, m, b.Spec.Repository, "configs-"+b.Name)
	if err != nil || got.digest == "" {
		return got, err
	}
	yes := true
	job, files := buildjob.Make(choice.Variant, buildjob.Build{
		Name: b.Name, Namespace: v1alpha1.SystemNamespace, Image: o.Spec.Build.Image, NodeSelector: o.Spec.Build.NodeSelector,
		Labels:        map[string]string{v1alpha1.LabelOSImage: label(o.Name), v1alpha1.LabelOSBuild: label(b.Name), v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController},
		Owner:         &metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OSBuild", Name: b.Name, UID: b.UID, Controller: &yes},
		Containerfile: osimage.Render(b.Spec.Repository+"@"+got.digest, b.Spec.Packages, b.Spec.Containerfile), Target: b.Spec.Repository + ":" + b.Name,
		PullSecret: nameOf(pullSecret(&o.Spec)), PushSecret: nameOf(pushSecret(&o.Spec)),
	})
	for _, x := range []client.Object{files, job} {
		if err := r.Client.Create(ctx, x, client.FieldOwner(v1alpha1.FieldOwnerController)); err != nil && !apierrors.IsAlreadyExists(err) {
			return result{}, err
		}
	}
	st.Job, st.Variant, st.VariantWhy = job.Name, string(choice.Variant), cut(choice.Why, 1024)
	return result{waits: jobEvery}, nil
}

func nameOf(s *v1alpha1.PullSecret) string {
	if s == nil {
		return ""
	}
	return s.Name
}

// facts of the nodes that may build, and of the namespace.
func (r *Builds) facts(ctx context.Context, selector map[string]string) (buildjob.Facts, error) {
	var ns corev1.Namespace
	if err := r.Live.Get(ctx, client.ObjectKey{Name: v1alpha1.SystemNamespace}, &ns); err != nil {
		return buildjob.Facts{}, err
	}
	f := buildjob.Facts{Level: ns.Labels["pod-security.kubernetes.io/enforce"]}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(selector)}, client.UnsafeDisableDeepCopy); err != nil {
		return f, err
	}
	f.UserNamespaces = len(nodes.Items) > 0
	for i := range nodes.Items {
		n := &nodes.Items[i]
		f.CRIO = f.CRIO || len(n.Status.NodeInfo.ContainerRuntimeVersion) > 4 && n.Status.NodeInfo.ContainerRuntimeVersion[:5] == "cri-o"
		f.UserNamespaces = f.UserNamespaces && slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool {
			return h.Name == "" && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
		})
	}
	return f, nil
}

// tidy takes what a build needed away: always if it was interrupted or succeeded;
// of a failed one it stays to be looked at, and goes with it.
func (r *Builds) tidy(ctx context.Context, b *v1alpha1.OSBuild) error {
	if b.Status.Job == "" || b.Status.Phase == v1alpha1.BuildFailed {
		return nil
	}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: b.Status.Job}
	var job batchv1.Job
	var errs []error
	if err := r.Live.Get(ctx, key, &job); err == nil && metav1.IsControlledBy(&job, b) {
		errs = append(errs, r.deleteJob(ctx, &job))
	} else {
		errs = append(errs, client.IgnoreNotFound(err))
	}
	var files corev1.ConfigMap
	if err := r.Live.Get(ctx, key, &files); err == nil && metav1.IsControlledBy(&files, b) {
		errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, &files, client.Preconditions{UID: &files.UID})))
	} else {
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}
