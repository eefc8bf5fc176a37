package tagscmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/publish"
	"github.com/refit-dev/refit/internal/registry"
)

// source is the origin of the published tags: a registry or a file.
type source struct {
	repo, file string
	scheme     *string
	reader     *registry.Reader
}

func sourceFlags(c *cobra.Command) *source {
	s := &source{scheme: schemeFlag(c)}
	c.Flags().StringVar(&s.repo, "repo", "", "repository to read from its registry")
	c.Flags().StringVar(&s.file, "published", "", "file with published tags, in JSON, instead of a registry")
	c.MarkFlagsMutuallyExclusive("repo", "published")
	return s
}

// read returns the published tags: tags and digests of a registry, everything of a file.
func (s *source) read(cmd *cobra.Command) (p publish.Published, err error) {
	switch {
	case s.file != "":
		if err = readJSON(cmd, s.file, &p); p.Scheme == "" || cmd.Flags().Changed("scheme") {
			p.Scheme = *s.scheme
		}
	case s.repo != "":
		p, err = s.list(cmd.Context())
	default:
		err = console.UsageErrorf("no published tags: use --repo REPOSITORY or --published FILE")
	}
	if err != nil {
		return p, err
	}
	if p.Images == nil {
		p.Images = map[string]publish.Image{}
	}
	_, err = schemeOf(p.Scheme)
	return p, err
}

// list reads tags and digests from the registry.
func (s *source) list(ctx context.Context) (publish.Published, error) {
	ref, err := imagetag.ParseRef(s.repo)
	if err != nil || ref.Tag != "" || ref.Digest != "" {
		return publish.Published{}, console.UsageErrorf("--repo %q: name a repository without tag and digest", s.repo)
	}
	if err := s.open(); err != nil {
		return publish.Published{}, err
	}
	tags, err := s.reader.Tags(ctx, ref.Repository)
	return publish.Published{Repository: ref.Repository, Scheme: *s.scheme, Tags: tags}, err
}

func (s *source) open() (err error) {
	if s.reader == nil {
		s.reader, err = registry.NewReader()
	}
	return err
}

// describe reads the content of unknown digests from the registry. A file is complete
// and needs no registry.
func (s *source) describe(ctx context.Context, p *publish.Published, digests []string) error {
	if s.repo == "" {
		return nil
	}
	digests = slices.DeleteFunc(slices.Clone(digests), func(d string) bool { _, known := p.Images[d]; return known })
	images, err := s.reader.Images(ctx, p.Repository, digests)
	if err != nil {
		return err
	}
	for _, i := range images {
		p.Images[i.Digest] = imageOf(i)
	}
	return nil
}

// imageOf returns the facts of an image in a registry for the planner.
func imageOf(i registry.Image) publish.Image {
	out := publish.Image{Digest: i.Digest, Config: i.Config, Layers: i.Layers, Platforms: i.Platforms, Children: i.Children, Created: i.Created}
	out.Describe(i.Labels)
	return out
}

// readJSON reads a file, or standard input for -. An unknown field is an error: a
// misspelt one would change the plan silently.
func readJSON(cmd *cobra.Command, path string, v any) error {
	in := cmd.InOrStdin()
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return console.UsageError(err)
		}
		defer f.Close()
		in = f
	}
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return console.UsageError(fmt.Errorf("%s: %w", path, err))
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return console.UsageErrorf("%s: more than one value in it", path)
	}
	return nil
}
