package oci

import (
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// MirrorConfig is the content of a registries.conf. nil is an empty one.
type MirrorConfig struct{ registries []mirrorEntry }

// MirrorPlace is a repository that may have an image.
type MirrorPlace struct {
	Repository string
	// Insecure allows plain HTTP.
	Insecure bool
}

type mirrorEntry struct {
	Prefix       string   `toml:"prefix"`
	Location     string   `toml:"location"`
	Insecure     bool     `toml:"insecure"`
	Blocked      bool     `toml:"blocked"`
	ByDigestOnly bool     `toml:"mirror-by-digest-only"`
	Mirrors      []mirror `toml:"mirror"`
}

type mirror struct {
	Location string `toml:"location"`
	Insecure bool   `toml:"insecure"`
	Pull     string `toml:"pull-from-mirror"`
}

// ParseMirrors reads a registries.conf. It ignores everything except registries and their
// mirrors.
func ParseMirrors(text string) (*MirrorConfig, error) {
	var f struct {
		Registries any           `toml:"registries"`
		Registry   []mirrorEntry `toml:"registry"`
	}
	if _, err := toml.Decode(text, &f); err != nil {
		return nil, fmt.Errorf("it is not a registries.conf: %w", err)
	}
	if f.Registries != nil {
		return nil, fmt.Errorf("it is a registries.conf of version 1 ([registries.search]): write [[registry]] and [[registry.mirror]]")
	}
	for i := range f.Registry {
		if err := f.Registry[i].check(); err != nil {
			return nil, fmt.Errorf("[[registry]] number %d: %w", i+1, err)
		}
	}
	return &MirrorConfig{f.Registry}, nil
}

func (e *mirrorEntry) check() error {
	if e.Prefix == "" {
		e.Prefix = e.Location
	}
	e.Prefix, e.Location = strings.TrimSuffix(e.Prefix, "/"), strings.TrimSuffix(e.Location, "/")
	wild := strings.HasPrefix(e.Prefix, "*.")
	if wild && e.Location == e.Prefix {
		e.Location = "" // the image's own name counts
	}
	switch {
	case e.Prefix == "":
		return fmt.Errorf("it has neither prefix nor location")
	case strings.Contains(e.Prefix+e.Location, "://"):
		return fmt.Errorf("prefix and location must be without https://")
	case wild && strings.Contains(e.Prefix+e.Location, "/"), wild && e.Location != "":
		return fmt.Errorf("a prefix with * names hosts alone, and has no location")
	}
	for i := range e.Mirrors {
		if err := e.Mirrors[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) check() error {
	m.Location = strings.TrimSuffix(m.Location, "/")
	switch {
	case m.Location == "", strings.Contains(m.Location, "://"), strings.Contains(m.Location, "*"):
		return fmt.Errorf("mirror %q: location must be a registry, or a repository in one, without https://", m.Location)
	case !slices.Contains([]string{"", "all", "digest-only", "tag-only"}, m.Pull):
		return fmt.Errorf("mirror %s: pull-from-mirror must be all, digest-only or tag-only, not %q", m.Location, m.Pull)
	}
	return nil
}

// pathBelow is the part of a repository after the prefix; ok is false if the prefix does not
// match.
func (e *mirrorEntry) pathBelow(repository string) (rest string, ok bool) {
	if host, any := strings.CutPrefix(e.Prefix, "*"); any {
		own, after, _ := strings.Cut(repository, "/")
		name, _, _ := strings.Cut(own, ":")
		return "/" + after, strings.HasSuffix(name, host) || strings.HasSuffix(own, host)
	}
	rest, ok = strings.CutPrefix(repository, e.Prefix)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// Places of a repository in the order in which they are tried. byDigest says that the image
// is requested by its digest, so that no place can return another one.
func (c *MirrorConfig) Places(repository string, byDigest bool) ([]MirrorPlace, error) {
	own := MirrorPlace{Repository: repository}
	e, rest := c.closest(repository)
	if e == nil {
		return []MirrorPlace{own}, nil
	}
	if e.Blocked {
		return nil, fmt.Errorf("registries.conf blocks %s", e.Prefix)
	}
	var out []MirrorPlace
	for _, m := range e.Mirrors {
		pull := m.Pull
		if pull == "" && e.ByDigestOnly {
			pull = "digest-only"
		}
		if pull == "digest-only" && !byDigest || pull == "tag-only" && byDigest {
			continue
		}
		out = append(out, MirrorPlace{Repository: m.Location + rest, Insecure: m.Insecure})
	}
	if own.Insecure = e.Insecure; e.Location != "" {
		own.Repository = e.Location + rest
	}
	return append(out, own), nil
}

// closest is the entry with the longest prefix for a repository.
func (c *MirrorConfig) closest(repository string) (best *mirrorEntry, rest string) {
	if c == nil {
		return nil, ""
	}
	for i := range c.registries {
		e := &c.registries[i]
		if r, ok := e.pathBelow(repository); ok && (best == nil || len(e.Prefix) > len(best.Prefix)) {
			best, rest = e, r
		}
	}
	return best, rest
}
