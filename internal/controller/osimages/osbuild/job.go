package osbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
)

// containerfile makes the Jobs of a build, one for every platform, or looks how far
// they are. The base with the configuration is appended first: the user's text comes
// from that.
func (r *Builds) containerfile(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage, m materials) (result, error) {
	if o.Spec.Build == nil {
		return result{user: "spec.build.image does not say with which image it is built"}, nil
	}
	if len(st.Platforms) == 0 {
		return r.start(ctx, b, st, o, m)
	}
	var outs []imagebuild.Outcome
	st.Attempts, st.Log = 0, ""
	for _, platform := range st.Platforms {
		var job batchv1.Job
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: jobName(b, st.Platforms, platform)}, &job)
		if apierrors.IsNotFound(err) {
			return r.start(ctx, b, st, o, m)
		}
		if err != nil {
			return result{}, err
		}
		if !metav1.IsControlledBy(&job, b) {
			return result{waits: jobEvery}, nil // of a build of the same name that was deleted: it goes
		}
		out, again, err := r.outcome(ctx, &job, st)
		if err != nil || again {
			return result{waits: jobEvery}, err
		}
		if len(st.Platforms) > 1 && out.Log != "" {
			out.Log = platform + ": " + out.Log
		}
		outs = append(outs, out)
	}
	return r.combineOutcomes(ctx, b, st, m, outs)
}

// jobName of a platform's Job: the build's, if there is one platform.
func jobName(b *v1alpha1.OSBuild, platforms []string, platform string) string {
	if len(platforms) == 1 {
		return b.Name
	}
	name, suffix := b.Name, "-"+strings.TrimPrefix(imagebuild.Dashed(platform), "linux-")
	if over := len(name) + len(suffix) - maxJobName; over > 0 { // the hash is at its end
		name = strings.TrimLeft(name[over:], ".-")
	}
	return name + suffix
}

// maxJobName: it is a label's value of its pods.
const maxJobName = 63

// outcome of one Job; again says that it was replaced, or is to be.
func (r *Builds) outcome(ctx context.Context, job *batchv1.Job, st *v1alpha1.OSBuildStatus) (out imagebuild.Outcome, again bool, err error) {
	var pods corev1.PodList
	err = r.Live.List(ctx, &pods, client.InNamespace(v1alpha1.BuildsNamespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})
	if err != nil {
		return out, false, err
	}
	out = imagebuild.InspectJob(job, slices.Clone(pods.Items))
	st.Attempts += out.Tries
	if st.Log == "" {
		st.Log = out.Log
	}
	if !out.Finished || out.Fault != imagebuild.Namespaces || len(st.Tried) >= len(imagebuild.Variants) {
		return out, false, nil
	}
	// Another kind of pod may build. What was tried is written down before the Job
	// goes, so that it is not tried for ever.
	if !slices.Contains(st.Tried, st.Variant) {
		st.Tried = append(st.Tried, st.Variant)
		return out, true, nil
	}
	return out, true, r.deleteJob(ctx, job)
}

// combineOutcomes is what all Jobs came to: the first fault counts, and else the image of the
// one, or an index of them all.
func (r *Builds) combineOutcomes(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, m materials, outs []imagebuild.Outcome) (result, error) {
	for _, fault := range []imagebuild.Fault{imagebuild.User, imagebuild.Namespaces, imagebuild.Environment} {
		i := slices.IndexFunc(outs, func(o imagebuild.Outcome) bool { return o.Finished && o.Fault == fault })
		switch {
		case i < 0:
		case fault == imagebuild.User:
			return result{user: outs[i].Log}, nil
		default:
			st.Attempts = Tries // the Job has made its tries
			return result{surroundings: outs[i].Log}, nil
		}
	}
	if slices.ContainsFunc(outs, func(o imagebuild.Outcome) bool { return !o.Finished }) {
		return result{waits: jobEvery}, nil
	}
	// Platforms are built at the same time: the slowest push counts.
	slowest := slices.MaxFunc(outs, func(a, b imagebuild.Outcome) int { return cmp.Compare(a.PushSeconds, b.PushSeconds) })
	got := result{digest: outs[0].Digest, packages: outs[0].Packages, platforms: slices.Clone(st.Platforms), pushed: time.Duration(slowest.PushSeconds) * time.Second}
	if len(outs) == 1 {
		return got, nil
	}
	var parts []part
	for i, out := range outs {
		parts = append(parts, part{platform: st.Platforms[i], digest: out.Digest})
		got.manifests = append(got.manifests, out.Digest)
	}
	digest, fail, err := r.index(ctx, b, m, parts)
	if err != nil || digest == "" {
		return fail, err
	}
	got.digest = digest
	return got, nil
}

func (r *Builds) deleteJob(ctx context.Context, job *batchv1.Job) error {
	return client.IgnoreNotFound(r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID}))
}

func (r *Builds) start(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage, m materials) (result, error) {
	if m.given.Context != b.Spec.Context {
		return result{waits: jobEvery}, nil // the files have changed: another build is made, and this one ended
	}
	choice, archs, got, err := r.choosePod(ctx, st, o)
	if err != nil || got.user != "" {
		return got, err
	}
	image, got, err := m.unpack(ctx)
	if err != nil || got.user != "" || got.surroundings != "" {
		return got, err
	}
	got, err = r.append(ctx, b, m, b.Spec.Repository, "configs-"+b.Name)
	if err != nil || got.digest == "" {
		return got, err
	}
	platforms, left := buildable(b.Spec.Platforms, got.platforms, archs)
	if len(platforms) == 0 {
		return result{user: fmt.Sprintf("no node that may build has an architecture of the base (%s): add one, or select others by spec.build.nodeSelector", strings.Join(got.platforms, ", "))}, nil
	}
	if len(left) > 0 {
		choice.Why += "; left out, because no node that may build is of that architecture: " + strings.Join(left, ", ")
	}
	st.Platforms, st.Job, st.Variant, st.VariantWhy = platforms, jobName(b, platforms, platforms[0]), string(choice.Variant), text.Truncate(choice.Why, 1024)
	return result{waits: jobEvery}, r.jobs(ctx, b, st, o, m, b.Spec.Repository+"@"+got.digest, image)
}

// choosePod the pod that builds; archs are those of the nodes that may.
func (r *Builds) choosePod(ctx context.Context, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage) (choice imagebuild.Choice, archs map[string]bool, got result, err error) {
	facts, archs, err := r.readFacts(ctx, o.Spec.Build.NodeSelector)
	if err != nil {
		return choice, nil, got, err
	}
	var tried []imagebuild.Variant
	for _, v := range st.Tried {
		tried = append(tried, imagebuild.Variant(v))
	}
	choice, err = imagebuild.PickVariant(facts, tried)
	if err != nil {
		got.user = err.Error()
	}
	return choice, archs, got, nil
}

// buildable are the platforms that are built: those that were asked for, or those of
// the base that a node can build. A Job for one that was asked for waits for its node.
func buildable(asked, base []string, archs map[string]bool) (build, left []string) {
	if len(asked) > 0 {
		build = slices.Clone(asked)
		slices.Sort(build)
		return build, nil
	}
	for _, p := range base {
		if parts := strings.Split(p, "/"); len(parts) > 1 && archs[parts[1]] {
			build = append(build, p)
		} else {
			left = append(left, p)
		}
	}
	return build, left
}

// jobs makes a Job for every platform.
func (r *Builds) jobs(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus, o *v1alpha1.OSImage, m materials, configs, contextImage string) error {
	yes := true
	texts := osimage.Inputs{Containerfile: b.Spec.Containerfile, PerArchitecture: map[string]string{}}
	for _, t := range b.Spec.PerArchitecture {
		texts.PerArchitecture[t.Architecture] = t.Containerfile
	}
	for _, platform := range st.Platforms {
		name, target := jobName(b, st.Platforms, platform), b.Spec.Repository+":"+b.Name
		if len(st.Platforms) > 1 {
			target += "-" + imagebuild.Dashed(platform)
		}
		made := imagebuild.MakeJob(imagebuild.Variant(st.Variant), imagebuild.JobBuild{
			Name: name, Namespace: v1alpha1.BuildsNamespace, Image: o.Spec.Build.Image, NodeSelector: o.Spec.Build.NodeSelector, Platform: platform,
			Labels:        map[string]string{v1alpha1.LabelOSImage: Label(o.Name), v1alpha1.LabelOSBuild: Label(b.Name), v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController},
			Owner:         &metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OSBuild", Name: b.Name, UID: b.UID, Controller: &yes},
			Containerfile: osimage.RenderContainerfile(configs, b.Spec.Packages, texts.ContainerfileFor(platform)), Target: target,
			PullSecret: nameOf(PullSecret(&o.Spec)), PushSecret: nameOf(PushSecret(&o.Spec)),
			Proxy: m.given.Env(), CABundle: m.given.CA, Mirrors: m.given.Mirrors, Context: m.given.Files, ContextImage: contextImage, Secrets: m.given.Secrets,
			MaxMemory: o.Spec.Build.MaxMemory, MaxDisk: o.Spec.Build.MaxDisk,
		})
		objects := []client.Object{made.Files, made.Job}
		if made.Context != nil {
			objects = []client.Object{made.Files, made.Context, made.Job}
		}
		for _, x := range objects {
			if err := r.Client.Create(ctx, x, client.FieldOwner(v1alpha1.FieldOwnerController)); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	}
	return nil
}

func nameOf(s *v1alpha1.PullSecret) string {
	if s == nil {
		return ""
	}
	return s.Name
}

// readFacts of the nodes that may build, and of the namespace; archs are the architectures
// of those nodes.
func (r *Builds) readFacts(ctx context.Context, selector map[string]string) (f imagebuild.Facts, archs map[string]bool, err error) {
	var ns corev1.Namespace
	if err := r.Live.Get(ctx, client.ObjectKey{Name: v1alpha1.BuildsNamespace}, &ns); err != nil {
		return f, nil, err
	}
	f.Level, archs = ns.Labels["pod-security.kubernetes.io/enforce"], map[string]bool{}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(selector)}, client.UnsafeDisableDeepCopy); err != nil {
		return f, nil, err
	}
	f.UserNamespaces = len(nodes.Items) > 0
	for i := range nodes.Items {
		n := &nodes.Items[i]
		archs[n.Labels[corev1.LabelArchStable]] = true
		f.CRIO = f.CRIO || strings.HasPrefix(n.Status.NodeInfo.ContainerRuntimeVersion, "cri-o")
		f.UserNamespaces = f.UserNamespaces && slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool {
			return h.Name == "" && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
		})
	}
	return f, archs, nil
}

// cleanUp deletes the objects of a build that was interrupted or succeeded. Of a failed build
// it deletes what runs; the rest stays for inspection and is deleted with the build.
func (r *Builds) cleanUp(ctx context.Context, b *v1alpha1.OSBuild) error {
	if b.Status.Job == "" {
		return nil
	}
	failed := b.Status.Phase == v1alpha1.BuildFailed
	var errs []error
	for _, platform := range b.Status.Platforms {
		name := jobName(b, b.Status.Platforms, platform)
		var job batchv1.Job
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: name}, &job)
		if err == nil && metav1.IsControlledBy(&job, b) && job.DeletionTimestamp.IsZero() && (!failed || job.Status.Active > 0) {
			err = r.deleteJob(ctx, &job)
		}
		errs = append(errs, client.IgnoreNotFound(err))
		if !failed {
			errs = append(errs, r.deleteFiles(ctx, b, name), r.deleteFiles(ctx, b, name+imagebuild.ContextSuffix))
		}
	}
	return errors.Join(errs...)
}

func (r *Builds) deleteFiles(ctx context.Context, b *v1alpha1.OSBuild, name string) error {
	var files corev1.ConfigMap
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: name}, &files)
	if err == nil && metav1.IsControlledBy(&files, b) {
		err = r.Client.Delete(ctx, &files, client.Preconditions{UID: &files.UID})
	}
	return client.IgnoreNotFound(err)
}
