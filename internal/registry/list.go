package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/oci"
)

// maxConcurrent is how many requests a Reader has open.
const maxConcurrent = 8

// Reader reads repositories once, for a person at a command line, with the
// credentials of the usual files (~/.docker/config.json or $DOCKER_CONFIG,
// ${XDG_RUNTIME_DIR}/containers/auth.json). It writes nothing.
type Reader struct{ puller *remote.Puller }

// NewReader prepares access; nothing is connected yet.
func NewReader() (*Reader, error) {
	p, err := remote.NewPuller(remote.WithAuthFromKeychain(oci.DefaultKeychain), remote.WithUserAgent("refit"), remote.WithJobs(maxConcurrent))
	if err != nil {
		return nil, fmt.Errorf("registry client: %w", err)
	}
	return &Reader{p}, nil
}

// Tags lists a repository: every tag with its digest, with one listing and one HEAD for each
// tag. A repository that does not exist yet has none. A tag that vanishes between the two
// requests is left out.
func (r *Reader) Tags(ctx context.Context, repository string) (map[string]string, error) {
	repo, err := name.NewRepository(repository)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", repository, err)
	}
	names, err := r.puller.List(ctx, repo)
	if isNotFound(err) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tags of %s: %w", repository, err)
	}
	digests := make([]string, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrent)
	for i, text := range names {
		g.Go(func() error {
			d, err := r.puller.Head(ctx, repo.Tag(text))
			switch {
			case isNotFound(err):
				return nil
			case err != nil:
				return fmt.Errorf("tag %s of %s: %w", text, repository, err)
			}
			digests[i] = d.Digest.String()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	tags := make(map[string]string, len(names))
	for i, text := range names {
		if digests[i] != "" {
			tags[text] = digests[i]
		}
	}
	return tags, nil
}

// isNotFound reports that the registry answers, and has no such object.
func isNotFound(err error) bool {
	var said *transport.Error
	return errors.As(err, &said) && said.StatusCode == http.StatusNotFound
}
