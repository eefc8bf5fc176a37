package bundlecmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/text"
)

func newPush() *cobra.Command {
	return &cobra.Command{
		Use: "push PATH REFERENCE", Short: "Put a bundle into a registry, from which nodes can fetch it",
		Long: `Put a bundle into a registry as an artifact. Each blob is stored once; blobs that the repository has are not sent
again, so an interrupted push continues. The command verifies every byte while it reads it. Clients can pull the images of
the bundle by their digests from the same repository.

The logins are those of docker and podman. After the push, name the reference when you approve the bundle:
refit approve DIGEST --registry REFERENCE. One node then fetches the bundle, and the others take it from that node. A tag
that moves to another bundle stops nodes that have not finished: use a tag of its own for each bundle.
` + mediaHelp,
		Example: "  refit bundle push k8s.bundle registry.example/site/bundles:v1.36.3",
		Args:    console.Args(cobra.ExactArgs(2)),
		RunE:    func(c *cobra.Command, a []string) error { return push(c, a[0], a[1]) },
	}
}

func push(c *cobra.Command, path, reference string) error {
	repository, tag, err := registry.ParseReference(reference)
	if err != nil {
		return console.UsageError(err)
	}
	if bundle.ValidDigest(tag) {
		return console.UsageErrorf("reference %q: name a tag, for example %s:v1", reference, repository)
	}
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		return withExitCode(err)
	}
	defer f.Close()
	if err := f.CheckSize(); err != nil {
		return withExitCode(err)
	}
	u, images, err := bundlereader.Upload(f, repository, tag)
	if err != nil {
		return withExitCode(err)
	}
	bar := newProgress(c.ErrOrStderr(), "pushing")
	var done, total int64
	for _, m := range u.Mounts {
		total += m.Size
	}
	u.Sent = func(size int64) {
		done += size
		bar.set(done, total)
	}
	_, err = registry.NewWriter(nil, nil).Push(c.Context(), u)
	bar.finish(err == nil)
	if err != nil {
		return pushError(err)
	}
	h := f.Header()
	fmt.Fprintf(c.ErrOrStderr(), "%s %s, %s; %s can be pulled by digest\n", h.Metadata.Name, h.Metadata.Version, text.Count(len(u.Mounts), "blob"), text.Count(images, "image"))
	return printf(c, "%s %s\n", h.Digest, reference)
}

// pushError keeps the exit code of a damaged bundle.
func pushError(err error) error {
	var f *registry.Failure
	if errors.As(err, &f) && f.Kind == registry.Unauthorized {
		return fmt.Errorf("%w; log in with podman login or docker login, as a user that may push", err)
	}
	return withExitCode(err)
}
