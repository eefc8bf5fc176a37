package tagscmd

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// maxParallelRequests bounds the questions to registries under way.
	maxParallelRequests = 8
	// requestTimeout bounds one question.
	requestTimeout = 15 * time.Second
)

// registryPoller resolves the tags that a cluster runs at their registries.
type registryPoller struct {
	access *inputs.Access
	poller *registry.Poller
	keys   *registry.Keys

	mu    sync.Mutex
	known map[string]model.Published
	// gone has repository@digest: true if the registry does not have it.
	gone   map[string]bool
	warned map[string]bool
}

// pollRegistries adds the answers of registries to the published tags; those of a file
// take precedence. If a registry does not answer, its tags stay unknown.
func pollRegistries(ctx context.Context, a *inputs.Access, dockerConfig string, o *auditfacts.Objects) error {
	k := &registryPoller{access: a, poller: registry.NewPoller(nil, time.Now), known: map[string]model.Published{}, gone: map[string]bool{}, warned: map[string]bool{}}
	if dockerConfig != "" {
		text, err := os.ReadFile(dockerConfig)
		if err == nil {
			k.keys, err = registry.ParseKeys(text)
		}
		if err != nil {
			return console.UsageError(err)
		}
	}
	var g errgroup.Group
	g.SetLimit(maxParallelRequests)
	for r, runs := range tagsOf(o) {
		if _, said := o.Published[r.String()]; said {
			continue
		}
		g.Go(func() error { k.pollTag(ctx, r, runs); return nil })
	}
	for _, r := range digestRefs(o) {
		g.Go(func() error { k.checkDigest(ctx, r); return nil })
	}
	_ = g.Wait() // each request reports its own failure
	for name, p := range o.Published {
		k.known[name] = p
	}
	o.Published, o.GoneDigests = k.known, k.gone
	return ctx.Err()
}

// tagsOf returns the tags of running pods, with the imageIDs that they report.
func tagsOf(o *auditfacts.Objects) map[imagetag.Ref][]string {
	out := map[imagetag.Ref][]string{}
	for i := range o.Pods {
		p, ok := auditfacts.Pod(&o.Pods[i])
		if !ok {
			continue
		}
		for _, u := range p.Uses {
			r, err := imagetag.ParseRef(u.Image)
			if err != nil || r.Digest != "" && r.Tag == "" {
				continue
			}
			if r.Tag == "" {
				r.Tag = "latest"
			}
			r.Digest = ""
			if !slices.Contains(out[r], u.Runs) {
				out[r] = append(out[r], u.Runs)
			}
		}
	}
	return out
}

// digestRefs returns the images that pods name by digest.
func digestRefs(o *auditfacts.Objects) []imagetag.Ref {
	var out []imagetag.Ref
	for i := range o.Pods {
		p, ok := auditfacts.Pod(&o.Pods[i])
		if !ok {
			continue
		}
		for _, u := range p.Uses {
			r, err := imagetag.ParseRef(u.Image)
			if r.Tag = ""; err == nil && r.Digest != "" && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// checkDigest checks whether the registry still has an image that pods name by digest.
func (k *registryPoller) checkDigest(ctx context.Context, r imagetag.Ref) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := k.poller.Digest(ctx, registry.Place{Repository: r.Repository, Keys: k.keys}, r.Digest, 0)
	var f *registry.Failure
	gone := errors.As(err, &f) && (f.Kind == registry.TagDeleted || f.Kind == registry.RepositoryMissing)
	if err != nil && !gone {
		k.reportFailure(r, err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone[r.Repository+"@"+r.Digest] = gone
}

func (k *registryPoller) pollTag(ctx context.Context, r imagetag.Ref, runs []string) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	at := registry.Place{Repository: r.Repository, Keys: k.keys}
	d, err := k.poller.Digest(ctx, at, r.Tag, 0)
	if err != nil {
		k.reportFailure(r, err)
		return
	}
	p := model.Published{Digest: d, By: "registry"}
	other := func(imageID string) bool { return imageID != "" && !strings.HasSuffix(imageID, "@"+d) }
	if slices.ContainsFunc(runs, other) { // it may be the same image under another of its digests
		if said, err := k.poller.Describe(ctx, at, d); err == nil {
			p.Same, p.Version = said.Same, said.AppVersion
		}
	}
	k.addPublished(r, p)
}

func (k *registryPoller) addPublished(r imagetag.Ref, p model.Published) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[r.String()] = p
}

// reportFailure reports an error once per registry; a deleted tag is an answer, not an error.
func (k *registryPoller) reportFailure(r imagetag.Ref, err error) {
	var f *registry.Failure
	if errors.As(err, &f) && (f.Kind == registry.TagDeleted || f.Kind == registry.RepositoryMissing) {
		k.addPublished(r, model.Published{Gone: true, By: "registry"})
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.warned[r.Host()] {
		k.warned[r.Host()] = true
		k.access.Note("unknown: %v", err)
	}
}
