package bundlecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/oci"
)

// maxPlatforms of an index that are compared with a running ID.
const maxPlatforms = 40

// wantedImage is a name with what containers run under it.
type wantedImage struct {
	name, at string
	running  []inputs.RunningImage
}

// tagResolver finds the image of a name that a restart needs: the one that runs.
type tagResolver struct {
	places     imagePlaces
	registries *oci.Registries
	choice     string
}

func newTagResolver(places imagePlaces, choice string) (*tagResolver, error) {
	registries, err := oci.NewRegistries()
	if err != nil {
		return nil, err
	}
	return &tagResolver{places: places, registries: registries, choice: choice}, nil
}

// resolved is the answer for one name: a source, or why there is none.
type resolved struct{ source, note, problem string }

// resolveAll resolves all names in their order, and collects all problems.
func (r *tagResolver) resolveAll(ctx context.Context, want []wantedImage) (sources, notes, problems []string, err error) {
	all := make([]resolved, len(want))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelImages)
	for i, w := range want {
		g.Go(func() (err error) {
			all[i], err = r.resolve(ctx, w)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, nil, err
	}
	for _, x := range all {
		if x.note != "" {
			notes = append(notes, x.note)
		}
		if x.problem != "" {
			problems = append(problems, x.problem)
		} else {
			sources = append(sources, x.source)
		}
	}
	return sources, notes, problems, nil
}

// located is an image at a place, with the source that has it.
type located struct {
	root   oci.Root
	source string
	// missing: the places that were asked do not have it.
	missing string
}

// locate opens an image by name, or by the digest in its place.
func (r *tagResolver) locate(ctx context.Context, name, digest string) (located, error) {
	p := r.places.placeOf(name)
	ask := name
	if digest != "" {
		ask = oci.Repository(name) + "@" + digest
	}
	if p != nil && p.kind != mirrorKind {
		return p.locateInLayout(name, digest)
	}
	refs := []string{ask}
	if p != nil {
		refs = p.references(ask)
	}
	for _, ref := range refs {
		root, err := r.registries.Open(ctx, ref)
		if err == nil {
			return located{root: root, source: name + "=" + mirrorKind + "://" + oci.Repository(ref) + "@" + root.Desc.Digest.String()}, nil
		}
		var said *transport.Error
		if !errors.As(err, &said) || said.StatusCode != http.StatusNotFound {
			return located{}, err
		}
	}
	return located{missing: strings.Join(refs, ", ")}, nil
}

// locateInLayout finds an image by its name; a layout has no other images of the name.
func (p *imagePlace) locateInLayout(name, digest string) (located, error) {
	tagged, _, _ := strings.Cut(name, "@")
	open := oci.OpenLayout
	if p.kind == archiveKind {
		open = func(file, tag string) ([]oci.Root, error) {
			roots, c, err := oci.OpenArchive(file, tag)
			if err == nil {
				defer c.Close() // the descriptor is all that is used
			}
			return roots, err
		}
	}
	roots, err := open(p.path, tagged)
	if err != nil {
		return located{}, fmt.Errorf("image %s: %w", name, err)
	}
	if len(roots) != 1 || digest != "" && roots[0].Desc.Digest.String() != digest {
		return located{missing: p.kind + ":" + p.path}, nil
	}
	return located{root: roots[0], source: p.kind + ":" + p.path + ":" + tagged}, nil
}

// resolve decides on one name.
func (r *tagResolver) resolve(ctx context.Context, w wantedImage) (resolved, error) {
	tagged, pinned, _ := strings.Cut(w.name, "@")
	if pinned != "" { // the specification decides
		at, err := r.locate(ctx, w.name, pinned)
		if at.missing != "" {
			return resolved{problem: fmt.Sprintf("%s (%s) is not at %s", w.name, w.at, at.missing)}, err
		}
		return resolved{source: at.source}, err
	}
	now, err := r.locate(ctx, tagged, "")
	if err != nil {
		return resolved{}, err
	}
	if now.missing == "" {
		same, err := r.sameAs(ctx, now.root, w.running)
		if err != nil {
			return resolved{}, err
		}
		if same == len(w.running) {
			return resolved{source: now.source}, nil
		}
		if r.choice == tagsRegistry {
			return resolved{source: now.source, note: fmt.Sprintf("%s: the tag moved. The bundle has %s of the registry, and containers run %s", w.name, now.root.Desc.Digest, describe(w.running))}, nil
		}
		if same > 0 { // the next pull brings all to this one
			return resolved{source: now.source, note: fmt.Sprintf("%s: containers run different images under this tag: %s. The bundle has %s, which the tag has now", w.name, describe(w.running), now.root.Desc.Digest)}, nil
		}
	}
	return r.moved(ctx, w, now)
}

// moved finds the running image of a tag that names another one now, or none.
func (r *tagResolver) moved(ctx context.Context, w wantedImage, now located) (resolved, error) {
	is := "the tag has " + now.root.Desc.Digest.String() + " now"
	if now.missing != "" {
		is = "the tag is not at " + now.missing
	}
	const choice = "--cluster-tags registry takes what the tag has"
	switch {
	case len(w.running) == 0:
		return resolved{problem: fmt.Sprintf("%s (%s) is not at %s", w.name, w.at, now.missing)}, nil
	case len(w.running) > 1:
		return resolved{problem: fmt.Sprintf("%s: containers run different images under this tag: %s; %s. %s", w.name, describe(w.running), is, choice)}, nil
	case w.running[0].IsID:
		return resolved{problem: fmt.Sprintf("%s: containers run the image with the ID %s, which no registry can find; %s. %s", w.name, describe(w.running), is, choice)}, nil
	}
	old, err := r.locate(ctx, w.name, w.running[0].Digest)
	if err != nil {
		return resolved{}, err
	}
	if old.missing != "" {
		return resolved{problem: fmt.Sprintf("%s: containers run %s, which is not at %s any more; %s. %s", w.name, describe(w.running), old.missing, is, choice)}, nil
	}
	return resolved{source: old.source, note: fmt.Sprintf("%s: the tag moved. The bundle has what runs, %s; %s. %s", w.name, describe(w.running), is, choice)}, nil
}

// describe lists digests with the number of containers and one of them.
func describe(all []inputs.RunningImage) string {
	var out []string
	for _, x := range all {
		switch x.Containers {
		case 0:
			out = append(out, x.Digest+" (by the status of "+x.At+")")
		case 1:
			out = append(out, x.Digest+" ("+x.At+")")
		default:
			out = append(out, fmt.Sprintf("%s (%d containers, for example %s)", x.Digest, x.Containers, x.At))
		}
	}
	return strings.Join(out, ", ")
}

// sameAs counts the running digests that are those of an image: its own, that of one of its
// platforms, or the ID of a platform. Runtimes report any of them.
func (r *tagResolver) sameAs(ctx context.Context, root oci.Root, running []inputs.RunningImage) (int, error) {
	is := root.Desc.Digest.String()
	if !slices.ContainsFunc(running, func(x inputs.RunningImage) bool { return x.Digest != is }) {
		return len(running), nil
	}
	needIDs := slices.ContainsFunc(running, func(x inputs.RunningImage) bool { return x.IsID })
	known, err := partsOf(ctx, root, needIDs)
	if err != nil {
		return 0, err
	}
	same := 0
	for _, x := range running {
		if x.Digest == is || slices.Contains(known, x.Digest) {
			same++
		}
	}
	return same, nil
}

// partsOf are the digests of the platforms of an image, and with ids those of their
// configurations.
func partsOf(ctx context.Context, root oci.Root, ids bool) ([]string, error) {
	data, err := oci.Fetch(ctx, root.Store, root.Desc)
	if err != nil {
		return nil, err
	}
	var m struct {
		Config    ocispec.Descriptor   `json:"config"`
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", root.Desc.Digest, err)
	}
	var out []string
	if m.Config.Digest != "" {
		out = append(out, m.Config.Digest.String())
	}
	for i, d := range m.Manifests {
		out = append(out, d.Digest.String())
		if !ids || i >= maxPlatforms {
			continue
		}
		more, err := partsOf(ctx, oci.Root{Store: root.Store, Desc: d}, false)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}
