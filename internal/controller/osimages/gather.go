package osimages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeconfigs"
	"github.com/refit-dev/refit/internal/controller/osimages/osbuild"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"

	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
	"github.com/refit-dev/refit/internal/registry"
)

// imageSnapshot is the input of one reconcile.
type imageSnapshot struct {
	now      time.Time
	images   []v1alpha1.OSImage
	builds   []v1alpha1.OSBuild
	pools    []v1alpha1.UpdatePool
	configs  []v1alpha1.NodeConfig
	sources  map[string]nodeconfig.Source
	contents map[string]*v1alpha1.Content // of types osconfig, osimage, packages, oslive and osfacts
	// facts are the names of the Contents with what images have, by digest.
	facts map[string]string
	// named are Contents that this look named in a new build.
	named map[string]bool
	// site is what nodes hold, once it was asked for.
	site *PrepullFacts
}

// poolsWithImage are the pools that name an OSImage which is there.
func (w *imageSnapshot) poolsWithImage() map[string]bool {
	out := map[string]bool{}
	for _, p := range w.pools {
		if p.Spec.OSImage != "" && slices.ContainsFunc(w.images, func(o v1alpha1.OSImage) bool { return o.Name == p.Spec.OSImage }) {
			out[p.Name] = true
		}
	}
	return out
}

func (r *Reconciler) gather(ctx context.Context) (*imageSnapshot, error) {
	var images v1alpha1.OSImageList
	var builds v1alpha1.OSBuildList
	var pools v1alpha1.UpdatePoolList
	var configs v1alpha1.NodeConfigList
	var contents v1alpha1.ContentList
	for _, l := range []client.ObjectList{&images, &builds, &pools, &configs} {
		if err := r.Live.List(ctx, l); err != nil {
			return nil, err
		}
	}
	if err := r.Live.List(ctx, &contents, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, err
	}
	w := &imageSnapshot{now: r.Now(), images: images.Items, builds: builds.Items, pools: pools.Items, configs: configs.Items, contents: map[string]*v1alpha1.Content{}, facts: map[string]string{}, named: map[string]bool{}}
	sort.Slice(w.pools, func(i, j int) bool { return w.pools[i].Name < w.pools[j].Name })
	sort.Slice(w.configs, func(i, j int) bool { return w.configs[i].Name < w.configs[j].Name })
	for i := range contents.Items {
		if c := &contents.Items[i]; slices.Contains([]string{v1alpha1.ContentOSConfig, v1alpha1.ContentOSImage, v1alpha1.ContentPackages, v1alpha1.ContentOSLive, v1alpha1.ContentOSFacts}, c.Type) {
			w.contents[c.Name] = c
			w.addFacts(c)
		}
	}
	if len(w.images) == 0 {
		return w, nil
	}
	var err error
	w.sources, err = nodeconfigs.Sources(ctx, r.Live, w.configs)
	return w, err
}

// poolPlan is what one pool wants of its OSImage, and what is to be done.
type poolPlan struct {
	image  *v1alpha1.OSImage
	pool   *v1alpha1.UpdatePool
	before v1alpha1.OSImagePool
	config model.NodeConfig
	placed osimage.Placement
	inputs osimage.Inputs
	// data of the Content with the configuration.
	data string
	// unused says which fields of the OSImage do not matter.
	unused string
	// refused says why no image can be made.
	refused  string
	decision osimage.Decision
	// live is the wanted image, if nodes need not boot it.
	live *v1alpha1.OSImageLive
	// boot says why the wanted image has to be booted, if it was compared.
	boot string
}

// poolPlans of all pools that name an OSImage.
func (w *imageSnapshot) poolPlans(o *v1alpha1.OSImage, about base, text osbuild.Texts) []*poolPlan {
	var out []*poolPlan
	for i := range w.pools {
		p := &w.pools[i]
		if p.Spec.OSImage != o.Name || !p.DeletionTimestamp.IsZero() {
			continue
		}
		x := &poolPlan{image: o, pool: p, before: v1alpha1.OSImagePool{Name: p.Name}}
		for _, b := range o.Status.Pools {
			if b.Name == p.Name {
				x.before = b
			}
		}
		x.before.Written = w.writtenPaths(p.Name)
		w.fill(x, about, text)
		out = append(out, x)
	}
	return out
}

// fill makes the inputs of a pool's build, or says why there can be none.
func (w *imageSnapshot) fill(x *poolPlan, about base, text osbuild.Texts) {
	var sources []nodeconfig.Source
	for i := range w.configs {
		if c := &w.configs[i]; nodeconfigs.ForPool(c, x.pool.Name) {
			sources = append(sources, w.sources[c.Name])
		}
	}
	vs := osimage.CheckRules("UpdatePool/"+x.pool.Name, nodeconfigs.Rules(x.pool))
	if len(vs) == 0 {
		x.config, vs = nodeconfig.Merge(nodeconfigs.Assign(x.pool, w.held(x), sources))
	}
	if len(vs) == 0 {
		x.placed, vs = osimage.PlaceConfig(x.config)
	}
	var problems []string
	for _, v := range vs {
		problems = append(problems, v.Message)
	}
	problems = append(problems, about.problem, text.Problem)
	x.refused = strings.Join(slices.DeleteFunc(problems, func(s string) bool { return s == "" }), "; ")
	if x.refused != "" {
		return
	}
	x.data = string(osimage.SealConfig(x.config))
	x.inputs = osimage.Inputs{OSImage: x.image.Name, Base: about.ref, Config: osimage.Hash(entriesText(x.placed.Entries)), Containerfile: text.Text, PerArchitecture: text.Per,
		Packages: x.placed.Packages, Repository: x.image.Spec.Repository, Platforms: x.image.Spec.Platforms}
	if x.image.Spec.Output == v1alpha1.OutputNodes {
		x.inputs.Output, x.inputs.Repository = string(v1alpha1.OutputNodes), onNodes(x.image.Name)
	}
	x.placeBuild(text)
}

// held is what the image of a pool was built from, the zero value if that is not known.
func (w *imageSnapshot) held(x *poolPlan) model.NodeConfig {
	c := w.contents[x.before.Content]
	if c == nil {
		return model.NodeConfig{}
	}
	config, _ := osimage.OpenConfig([]byte(c.Data)) // else nothing is known of it
	return config
}

// placeBuild sets what a build in a Job has in addition to its inputs, and whether a Job can
// build.
func (x *poolPlan) placeBuild(text osbuild.Texts) {
	b, _ := x.inputs.ChooseBuilder()
	switch {
	case b == osimage.Containerfile:
		x.inputs.Context = text.Context
	case x.image.Spec.Build != nil:
		x.unused = "spec.build does not matter: " + unusedWhy
	}
	if b != osimage.Containerfile || x.image.Spec.Build != nil {
		return
	}
	if x.refused = "packages are wanted (" + strings.Join(x.placed.Packages, ", ") + "), and spec.build.image does not say with which image they are installed"; x.inputs.Output != "" {
		x.refused = "packages are wanted (" + strings.Join(x.placed.Packages, ", ") + "), and spec.output: Nodes runs nothing: build the image where there is a registry, bring it in a bundle (refit bundle create --os-image), and name it with spec.image"
	}
}

// onNodes is what images of an OSImage are called that no registry has.
func onNodes(name string) string {
	const most = 200
	return model.NoRegistry + "/os/" + strings.TrimRight(name[:min(len(name), most)], ".-")
}

func entriesText(entries []osimage.LayerEntry) string {
	b, err := json.Marshal(entries)
	if err != nil {
		panic(err) // strings, numbers and bytes
	}
	return string(b)
}

// buildsOf an OSImage, as values. A namesake's that was deleted do not count.
func (w *imageSnapshot) buildsOf(o *v1alpha1.OSImage) []osimage.Build {
	var out []osimage.Build
	for i := range w.builds {
		if b := &w.builds[i]; b.Spec.OSImageUID == string(o.UID) {
			out = append(out, buildOf(b))
		}
	}
	return out
}

func buildOf(b *v1alpha1.OSBuild) osimage.Build {
	phase := osimage.Phase(b.Status.Phase)
	if phase == "" {
		phase = osimage.Prepared
	}
	return osimage.Build{Name: b.Name, Phase: phase, Digest: b.Status.Digest, Manifests: b.Status.Manifests, Message: b.Status.Log, CreatedAt: b.CreationTimestamp.Time, Deleting: !b.DeletionTimestamp.IsZero(),
		Inputs: osimage.Inputs{OSImage: b.Spec.OSImage, Base: b.Spec.Base, Config: b.Spec.Config, Containerfile: b.Spec.Containerfile, PerArchitecture: textsOf(b), Context: b.Spec.Context, Packages: b.Spec.Packages,
			Repository: b.Spec.Repository, Output: string(b.Spec.Output), Platforms: b.Spec.Platforms}}
}

func textsOf(b *v1alpha1.OSBuild) map[string]string {
	out := map[string]string{}
	for _, t := range b.Spec.PerArchitecture {
		out[t.Architecture] = t.Containerfile
	}
	return out
}

const unusedWhy = "nothing has to be run, so the image is made without a builder"

// liveDifference reports whether the pool's image differs from what is wanted only in what is
// changed without a reboot, and in what.
func (w *imageSnapshot) liveDifference(x *poolPlan, builds []osimage.Build) (is bool, why string) {
	i := slices.IndexFunc(builds, func(b osimage.Build) bool { return b.Name == x.before.Build })
	content := w.contents[x.before.Content]
	if i < 0 || content == nil {
		return false, ""
	}
	for _, d := range x.inputs.ChangedSince(builds[i].Inputs) {
		if d != "configuration" {
			return false, ""
		}
	}
	old, err := osimage.OpenConfig([]byte(content.Data))
	if err != nil {
		return false, ""
	}
	a := isChanged(x, old)
	if a.Reboots() {
		return false, ""
	}
	var says []string
	for _, b := range a.Matches {
		var do []string
		for _, y := range b.Actions {
			do = append(do, y.String())
		}
		says = append(says, fmt.Sprintf("%s (%s)", b.Change, strings.Join(do, ", ")))
	}
	return true, "without a reboot nodes get " + strings.Join(says, "; ")
}

// isChanged of the configuration since an image was made with an older one.
func isChanged(x *poolPlan, old model.NodeConfig) osimage.Disruption {
	return osimage.DecideDisruption(nodeconfigs.Rules(x.pool), osimage.Changes(old, x.config))
}

// base of an OSImage as it is now.
type base struct {
	ref, problem string
	// away: the registry is unavailable now, which no person has to fix.
	away *registry.Failure
}

// resolve finds the base's digest.
func (r *Reconciler) resolve(ctx context.Context, o *v1alpha1.OSImage, x osbuild.Inputs) (base, error) {
	spec := o.Spec.Base
	if spec.Track == nil {
		return base{ref: spec.Image}, nil
	}
	keys, problem, err := osbuild.Keys(ctx, r.Live, osbuild.PullSecret(&o.Spec))
	if err != nil || problem != "" {
		return base{problem: problem}, err
	}
	i := strings.LastIndex(spec.Image, ":")
	repository, tag := spec.Image[:i], spec.Image[i+1:]
	places, err := x.Elsewhere.Places(repository, false)
	if err != nil {
		return base{problem: "base " + spec.Image + ": " + err.Error()}, nil //nolint:nilerr // a person mends it
	}
	digest, err := r.digestOfTag(ctx, x, places, keys, tag)
	var f *registry.Failure
	switch {
	case err == nil:
		return base{ref: repository + "@" + digest}, nil
	case errors.As(err, &f) && isTransient(f):
		return base{ref: o.Status.Base, away: f}, nil // the last one that is known
	case errors.As(err, &f):
		return base{problem: "base " + spec.Image + ": " + f.Error()}, nil
	}
	return base{}, err
}

// digestOfTag is what is behind a tag, at the first place that says so. Of what went wrong at
// all of them that counts which may pass.
func (r *Reconciler) digestOfTag(ctx context.Context, x osbuild.Inputs, places []oci.MirrorPlace, keys *registry.Keys, tag string) (digest string, failed error) {
	for _, p := range places {
		digest, err := r.poller(x).Digest(ctx, registry.Place{Repository: p.Repository, Insecure: p.Insecure, Keys: keys}, tag, trackEvery)
		if err == nil {
			return digest, nil
		}
		var was *registry.Failure
		if failed == nil || !errors.As(failed, &was) || !isTransient(was) {
			failed = err
		}
	}
	return "", failed
}

func isTransient(f *registry.Failure) bool {
	return f.Kind == registry.Unreachable || f.Kind == registry.RateLimited
}
