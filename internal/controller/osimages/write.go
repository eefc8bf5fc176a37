package osimages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/registry"
)

// act makes and interrupts builds. What is named is written before what names it.
func (r *Reconciler) act(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage, wishes []*poolPlan) error {
	errs := []error{r.interruptOthers(ctx, w, o, wishes)}
	done := map[string]bool{}
	for _, x := range wishes {
		if done[x.decision.Build] {
			continue
		}
		switch x.decision.Verb {
		case osimage.Make:
			done[x.decision.Build] = true
			errs = append(errs, r.createBuild(ctx, w, x))
		case osimage.Remake:
			done[x.decision.Build] = true
			errs = append(errs, r.recreateBuild(ctx, w, x))
		case osimage.Use, osimage.Keep, osimage.Ask, osimage.Wait, osimage.Stuck:
		}
	}
	return errors.Join(errs...)
}

// interruptOthers ends builds that run and that no pool wants any more.
func (r *Reconciler) interruptOthers(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage, wishes []*poolPlan) error {
	wanted := map[string]bool{}
	for _, x := range wishes {
		if x.refused == "" {
			wanted[x.inputs.Name()] = true
		}
	}
	var errs []error
	for i := range w.builds {
		b := &w.builds[i]
		if b.Spec.OSImageUID == string(o.UID) && !wanted[b.Name] && !buildOf(b).Phase.Ended() && b.DeletionTimestamp.IsZero() {
			errs = append(errs, r.builds().Interrupt(ctx, b))
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) createBuild(ctx context.Context, w *imageSnapshot, x *poolPlan) error {
	c, err := ssa.MakeContent(ctx, r.Client, v1alpha1.ContentOSConfig, x.data)
	if err != nil {
		return err
	}
	w.named[c.Name] = true
	how, why := x.inputs.ChooseBuilder()
	yes := true
	b := &v1alpha1.OSBuild{ObjectMeta: metav1.ObjectMeta{Name: x.inputs.Name(), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController, v1alpha1.LabelOSImage: osbuild.Label(x.image.Name)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OSImage", Name: x.image.Name, UID: x.image.UID, Controller: &yes}}},
		Spec: v1alpha1.OSBuildSpec{OSImage: x.image.Name, OSImageUID: string(x.image.UID), Builder: string(how), BuilderWhy: text.Truncate(why, 1024), Base: x.inputs.Base, Content: c.Name, Config: x.inputs.Config,
			Containerfile: x.inputs.Containerfile, PerArchitecture: perArchitecture(x.inputs.PerArchitecture), Context: x.inputs.Context, Packages: x.inputs.Packages, Repository: x.inputs.Repository, Output: v1alpha1.OSImageOutput(x.inputs.Output), Platforms: x.inputs.Platforms, Why: text.Truncate(x.decision.Why, 1024)}}
	err = r.Client.Create(ctx, b, client.FieldOwner(v1alpha1.FieldOwnerController))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make OSBuild %s: %w", b.Name, err)
	}
	return nil
}

func perArchitecture(texts map[string]string) (out []v1alpha1.OSBuildText) {
	for _, arch := range slices.Sorted(maps.Keys(texts)) {
		out = append(out, v1alpha1.OSBuildText{Architecture: arch, Containerfile: texts[arch]})
	}
	return out
}

// recreateBuild deletes a build; the next look makes it.
func (r *Reconciler) recreateBuild(ctx context.Context, w *imageSnapshot, x *poolPlan) error {
	for i := range w.builds {
		b := &w.builds[i]
		if b.Name != x.decision.Build {
			continue
		}
		r.mu.Lock()
		delete(r.has, b.Spec.Repository+"@"+b.Status.Digest)
		r.mu.Unlock()
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID})); err != nil {
			return err
		}
	}
	return nil
}

// finished points a pool to a prebuilt image.
func (r *Reconciler) finished(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage) (again bool, err error) {
	var wishes []*poolPlan
	for i := range w.pools {
		if p := &w.pools[i]; p.Spec.OSImage == o.Name {
			wishes = append(wishes, &poolPlan{image: o, pool: p, before: v1alpha1.OSImagePool{Name: p.Name, Image: o.Spec.Image, Written: w.writtenPaths(p.Name)}, decision: osimage.Decision{Verb: osimage.Use, Why: "a finished image: who made it sees to what is in it"}})
		}
	}
	held, err := r.writeStatus(ctx, w, o, base{}, wishes)
	return !held, err
}

// writeStatus says which image every pool has, and whether all its nodes hold it. One
// that cannot be made leaves the one before.
func (r *Reconciler) writeStatus(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage, about base, wishes []*poolPlan) (held bool, err error) {
	held = true
	st := v1alpha1.OSImageStatus{ObservedGeneration: o.Generation, Base: about.ref}
	st.Conditions = append(st.Conditions, o.Status.Conditions...)
	if st.Base == "" {
		st.Base = o.Status.Base
	}
	st.Rebuilt = o.Status.Rebuilt
	for _, x := range wishes {
		p := w.poolStatus(x)
		if err := r.livePart(ctx, w, x, &p); err != nil {
			return false, err
		}
		all, err := r.prepullPool(ctx, w, x, &p)
		if err != nil {
			return false, err
		}
		reading, err := r.factsPart(ctx, w, x, &p)
		if err != nil {
			return false, err
		}
		held = held && all && !reading
		st.Pools = append(st.Pools, p)
		if x.decision.Verb == osimage.Remake {
			st.Rebuilt = o.Annotations[v1alpha1.AnnotationRebuild]
		}
	}
	reason, message := summary(about, wishes)
	stalled := slices.ContainsFunc(wishes, func(x *poolPlan) bool { return x.decision.Verb == osimage.Stuck })
	set := func(kind string, is bool) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: text.Truncate(message, 4096), ObservedGeneration: o.Generation, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second))})
	}
	set(v1alpha1.ConditionReady, reason == v1alpha1.ReasonAsExpected)
	set(v1alpha1.ConditionStalled, stalled)
	if equality.Semantic.DeepEqual(o.Status, st) {
		return held, nil
	}
	return held, client.IgnoreNotFound(ssa.Status(ctx, r.Client, ssa.Object{Kind: "OSImage", Name: o.Name, UID: string(o.UID)}, &st))
}

// summary is the reason of the whole and a sentence: what builds, else what waits
// first, else what every pool has.
func summary(about base, wishes []*poolPlan) (reason, message string) {
	if about.away != nil {
		return v1alpha1.ReasonRegistryUnreachable, about.away.Error()
	}
	if len(wishes) == 0 {
		return v1alpha1.ReasonAsExpected, "no pool names it"
	}
	var says []string
	for _, x := range wishes {
		text := "pool " + x.pool.Name + ": " + x.decision.Why
		says = append(says, text)
		switch {
		case x.decision.Verb == osimage.Make || x.decision.Verb == osimage.Remake:
			return v1alpha1.ReasonImageBuilding, text
		case x.decision.Reason != "" && reason == "":
			reason, message = x.decision.Reason, text
		}
	}
	if reason == "" {
		return v1alpha1.ReasonAsExpected, strings.Join(says, "; ")
	}
	return reason, message
}

func (w *imageSnapshot) poolStatus(x *poolPlan) v1alpha1.OSImagePool {
	st := x.before
	b := w.build(x.decision.Build)
	st.State, st.Message, st.Placed = string(x.decision.Verb), text.Truncate(x.messageFor(b), 1024), nil
	if x.refused == "" && x.image.Spec.Image == "" {
		st.Wanted = x.inputs.Name()
		st.Placed = map[string]int32{}
		for _, i := range x.placed.Items {
			st.Placed[string(i.Where)]++
		}
	}
	if x.decision.Verb != osimage.Use || b == nil {
		return st
	}
	repository := x.image.Spec.PullRepository
	if repository == "" {
		repository = b.Spec.Repository
	}
	st.Image, st.Build, st.Content = repository+"@"+b.Status.Digest, b.Name, b.Spec.Content
	return st
}

// messageFor is the decision's sentence, with what changed in the packages of an image that is
// used, and what of the OSImage does not matter.
func (x *poolPlan) messageFor(b *v1alpha1.OSBuild) string {
	why := x.decision.Why
	if x.decision.Verb == osimage.Use && b != nil && b.Status.PackagesSay != "" {
		why += "; " + b.Status.PackagesSay
	}
	if x.decision.Verb == osimage.Use && x.boot != "" {
		why += "; nodes have to boot it: " + x.boot
	}
	if x.unused != "" {
		why += "; " + x.unused
	}
	return why
}

// build of a name; nil if there is none.
func (w *imageSnapshot) build(name string) *v1alpha1.OSBuild {
	for i := range w.builds {
		if w.builds[i].Name == name {
			return &w.builds[i]
		}
	}
	return nil
}

// digests in the desired state of nodes.
var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// contentRest is how long an unreferenced Content stays.
const contentRest = 10 * time.Minute

// sweep deletes unused builds and images, and their Contents.
func (r *Reconciler) sweep(ctx context.Context, w *imageSnapshot) error {
	named := map[string]bool{}
	for _, o := range w.images {
		for _, p := range o.Status.Pools {
			named[p.Build], named[p.Wanted], w.named[p.Content], w.named[contentOf(p.Live)], w.named[p.Facts] = true, true, true, true, true
		}
	}
	var errs []error
	for i := range w.images {
		errs = append(errs, r.sweepBuilds(ctx, w, &w.images[i], named))
	}
	for _, b := range w.builds {
		w.named[b.Spec.Content], w.named[b.Status.Packages], w.named[b.Status.Parts] = true, true, true
	}
	for name, c := range w.contents {
		if !w.named[name] && w.now.Sub(c.CreationTimestamp.Time) > contentRest {
			errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, c)))
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) sweepBuilds(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage, named map[string]bool) error {
	keep := 3
	if o.Spec.Keep != nil {
		keep = int(*o.Spec.Keep)
	}
	builds := w.buildsOf(o)
	if len(osimage.Garbage(builds, nil, named, keep)) == 0 {
		return nil // nodes need not be asked
	}
	used, err := r.usedDigests(ctx)
	if err != nil || used == nil {
		return err
	}
	var errs []error
	for _, name := range osimage.Garbage(builds, used, named, keep) {
		errs = append(errs, r.discardBuild(ctx, w, o, name))
	}
	return errors.Join(errs...)
}

// usedDigests are the digests that nodes have, want, or may roll back to: those in their OS
// report and in their desired state. It is nil if a node with a desired state has not
// reported yet: then nothing is deleted.
func (r *Reconciler) usedDigests(ctx context.Context) (map[string]bool, error) {
	var updates v1alpha1.NodeUpdateList
	if err := r.Live.List(ctx, &updates, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, err
	}
	used := reportedDigests(updates.Items)
	if used == nil {
		return nil, nil
	}
	var contents v1alpha1.ContentList
	if err := r.Live.List(ctx, &contents, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, err
	}
	for i := range contents.Items {
		c := &contents.Items[i]
		if c.Type != v1alpha1.ContentConfig && c.Type != v1alpha1.ContentPlan {
			continue
		}
		for _, d := range digests.FindAllString(c.Data, -1) {
			used[d] = true
		}
	}
	return used, nil
}

// reportedDigests are all that nodes say of their OS; nil if one does not say.
func reportedDigests(updates []v1alpha1.NodeUpdate) map[string]bool {
	used := map[string]bool{}
	for i := range updates {
		o := updates[i].Status.Observed
		if o == nil && updates[i].Spec.Config != "" {
			return nil
		}
		if o == nil {
			continue
		}
		for field, value := range o.Fields {
			if strings.HasPrefix(field, "os/") {
				used[value] = true
			}
		}
	}
	return used
}

// discardBuild deletes a build's image, then the build. A registry that lets nothing be
// deleted is not asked for ever: the object goes, the image stays there.
func (r *Reconciler) discardBuild(ctx context.Context, w *imageSnapshot, o *v1alpha1.OSImage, name string) error {
	i := slices.IndexFunc(w.builds, func(b v1alpha1.OSBuild) bool { return b.Name == name })
	b := &w.builds[i]
	shared := slices.ContainsFunc(w.builds, func(other v1alpha1.OSBuild) bool {
		return other.Name != name && other.Status.Digest == b.Status.Digest && other.Spec.Repository == b.Spec.Repository
	})
	if b.Status.Digest != "" && !shared && b.Spec.Output != v1alpha1.OutputNodes {
		keys, problem, err := osbuild.Keys(ctx, r.Live, osbuild.PushSecret(&o.Spec))
		if err != nil {
			return err
		}
		if problem == "" {
			err = registry.NewWriter(keys, r.Over).Delete(ctx, b.Spec.Repository, b.Status.Digest)
		}
		var f *registry.Failure
		if errors.As(err, &f) && f.Kind != registry.Unauthorized {
			return nil // the registry is unavailable: a later reconcile tries again
		}
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID}))
}
