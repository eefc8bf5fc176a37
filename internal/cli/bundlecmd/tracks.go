package bundlecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/text"
)

// tracksPrefix begins a source that stands for the approved images of ImageTracks:
// of the cluster, or with a path those of a file.
const tracksPrefix = "tracks:"

// trackSources are the images of tracks for a bundle, and the images that it needs then.
type trackSources struct {
	access   *inputs.Access
	rollback bool
	note     func(format string, a ...any)

	// digests by name; needs of the tracks' workloads.
	digests  map[string]string
	required []requiredImage
}

// requiredImage is an image that a workload asks for.
type requiredImage struct {
	workload, container, image string
}

// expand replaces the sources that stand for tracks.
func (f *trackSources) expand(ctx context.Context, sources []string) ([]string, error) {
	var out []string
	f.digests = map[string]string{}
	for _, s := range sources {
		path, ok := strings.CutPrefix(s, tracksPrefix)
		if !ok {
			out = append(out, s)
			continue
		}
		tracks, err := f.tracks(ctx, path)
		if err != nil {
			return nil, err
		}
		for i := range tracks {
			more, err := f.sourcesOf(&tracks[i])
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
	}
	return out, nil
}

func (f *trackSources) tracks(ctx context.Context, path string) ([]v1alpha1.ImageTrack, error) {
	if path != "" {
		f.note("workloads of the tracks in %s are not checked: name their manifests with --manifests", path)
		return readTracks(path)
	}
	c, err := f.access.Client()
	if err != nil {
		return nil, err
	}
	var l v1alpha1.ImageTrackList
	if err := c.List(ctx, &l); err != nil {
		return nil, inputs.ListError(err)
	}
	if len(l.Items) == 0 {
		return nil, console.WithExit(console.ExitBlocked, errors.New("the cluster has no ImageTrack: create one, or name images as sources"))
	}
	for i := range l.Items {
		if err := f.gather(ctx, c, &l.Items[i]); err != nil {
			return nil, err
		}
	}
	return l.Items, nil
}

// readTracks reads ImageTracks as kubectl get -o json or yaml writes them.
func readTracks(path string) ([]v1alpha1.ImageTrack, error) {
	file, err := fsutil.OpenRegular(path)
	if err != nil {
		return nil, console.UsageError(err)
	}
	defer file.Close()
	var out []v1alpha1.ImageTrack
	d := utilyaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		var doc struct {
			v1alpha1.ImageTrack `json:",inline"`
			Items               []v1alpha1.ImageTrack `json:"items"`
		}
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, console.UsageError(fmt.Errorf("%s: %w", path, err))
		}
		out = append(out, doc.Items...)
		if doc.Kind == "ImageTrack" {
			out = append(out, doc.ImageTrack)
		}
	}
	if len(out) == 0 {
		return nil, console.UsageErrorf("%s has no ImageTrack: write it with kubectl get imagetracks -o yaml", path)
	}
	return out, nil
}

// sourcesOf a track: its approved image under the followed tag and the long one.
func (f *trackSources) sourcesOf(o *v1alpha1.ImageTrack) ([]string, error) {
	st := &o.Status
	switch {
	case st.Approved == nil:
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("track %s has no approved image: refit tags status %s shows why", o.Name, o.Name))
	case o.Spec.Source == v1alpha1.SourceBundles:
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("track %s uses images of bundles: name that bundle as a source (bundle:FILE)", o.Name))
	}
	images := []v1alpha1.TrackedImage{*st.Approved}
	if f.rollback && len(st.History) > 0 {
		images = append(images, st.History[0])
		images[1].Tag = "" // the followed tag is the approved one's
	}
	var out []string
	for _, i := range images {
		for _, text := range []string{i.Tag, i.LongTag} {
			name := o.Spec.Repository + ":" + text
			if text == "" || f.digests[name] == i.Digest {
				continue
			}
			if other := f.digests[name]; other != "" {
				return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("two tracks have approved two images for %s: %s and %s; a tag names one image in a bundle", name, other, i.Digest))
			}
			f.digests[name] = i.Digest
			out = append(out, name+"=docker://"+o.Spec.Repository+"@"+i.Digest)
		}
	}
	return out, nil
}

// gather collects the images that the targets of a track need, once they run the
// approved one.
func (f *trackSources) gather(ctx context.Context, c client.Client, o *v1alpha1.ImageTrack) error {
	for i := range o.Spec.Targets {
		t := &o.Spec.Targets[i]
		selector := labels.Everything()
		if t.Selector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(t.Selector); err != nil {
				return console.UsageError(fmt.Errorf("track %s: %w", o.Name, err))
			}
		}
		list := map[string]client.ObjectList{track.Deployment: &appsv1.DeploymentList{}, track.DaemonSet: &appsv1.DaemonSetList{},
			track.StatefulSet: &appsv1.StatefulSetList{}, track.CronJob: &batchv1.CronJobList{}, track.StaticPod: &corev1.PodList{}}[t.Kind]
		if err := c.List(ctx, list, client.InNamespace(t.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return inputs.ListError(err)
		}
		for _, w := range specsOf(list) {
			if t.Name == "" || w.name == t.Name {
				f.add(o, t.Kind+"/"+t.Namespace+"/"+w.name, w.spec)
			}
		}
	}
	return nil
}

func (f *trackSources) add(o *v1alpha1.ImageTrack, workload string, spec *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			image := list[i].Image
			if ref, err := imagetag.ParseRef(image); err == nil && ref.Repository == o.Spec.Repository && o.Status.Approved != nil {
				image, _ = track.Rewrite(image, &track.Image{Digest: o.Status.Approved.Digest, Tag: o.Status.Approved.Tag})
			}
			n := requiredImage{workload, list[i].Name, image}
			if !slices.Contains(f.required, n) {
				f.required = append(f.required, n)
			}
		}
	}
}

// template of a workload's pods.
type template struct {
	name string
	spec *corev1.PodSpec
}

func specsOf(list client.ObjectList) []template {
	var out []template
	add := func(name string, spec *corev1.PodSpec) { out = append(out, template{name, spec}) }
	switch l := list.(type) {
	case *appsv1.DeploymentList:
		for i := range l.Items {
			add(l.Items[i].Name, &l.Items[i].Spec.Template.Spec)
		}
	case *appsv1.DaemonSetList:
		for i := range l.Items {
			add(l.Items[i].Name, &l.Items[i].Spec.Template.Spec)
		}
	case *appsv1.StatefulSetList:
		for i := range l.Items {
			add(l.Items[i].Name, &l.Items[i].Spec.Template.Spec)
		}
	case *batchv1.CronJobList:
		for i := range l.Items {
			add(l.Items[i].Name, &l.Items[i].Spec.JobTemplate.Spec.Template.Spec)
		}
	case *corev1.PodList:
		return staticPods(l.Items)
	}
	return out
}

func staticPods(pods []corev1.Pod) []template {
	var out []template
	for i := range pods {
		if p := &pods[i]; p.Annotations[corev1.MirrorPodAnnotationKey] != "" {
			out = append(out, template{strings.TrimSuffix(p.Name, "-"+p.Spec.NodeName), &p.Spec})
		}
	}
	return out
}

// accept is the closure check: every image of the tracks' targets is in the bundle.
func (f *trackSources) accept(m *bundle.Metadata) error {
	var missing []string
	for _, n := range f.required {
		if !bundleHas(m, n.image) {
			missing = append(missing, fmt.Sprintf("%s needs %s (container %s)", n.workload, n.image, n.container))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return console.WithExit(console.ExitBlocked, fmt.Errorf("the bundle was not created, %s of the tracks' workloads missing: %s. Name them as sources (docker://REF), or track them",
		text.Count(len(missing), "image"), strings.Join(missing, "; ")))
}

// bundleHas reports whether a bundle has the image of a reference.
func bundleHas(m *bundle.Metadata, image string) bool {
	want, err := imagetag.ParseRef(image)
	if err != nil {
		return false
	}
	if want.Tag == "" && want.Digest == "" {
		want.Tag = "latest"
	}
	return slices.ContainsFunc(m.Images, func(i bundle.Image) bool {
		have, err := imagetag.ParseRef(i.Name)
		if err != nil || have.Repository != want.Repository {
			return false
		}
		return want.Digest != "" && i.Digest == want.Digest || want.Digest == "" && have.Tag == want.Tag
	})
}
