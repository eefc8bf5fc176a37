package bundlewriter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// Kinds of sources.
const (
	sourceLayout   = "oci"
	sourceArchive  = "oci-archive"
	sourceDocker   = "docker-archive"
	sourceRegistry = "docker"
	sourceList     = "list"
	sourceBundle   = "bundle"
	sourcePayload  = "payload"
	sourceObjects  = "resources"
	sourceStream   = "boot-images"
	sourceBoot     = "boot-image"
)

// expanded are kinds that the command line replaces by others, so that lists cannot have them.
var expanded = map[string]bool{"tracks": true, "os-image": true, "kubernetes": true, "k3s": true, "rke2": true, "k0s": true, "manifests": true, "kustomize": true, "chart": true, "cluster": true}

// sourceHelp lists what can be written, for messages.
const sourceHelp = "oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:TAG], docker://REF, list:FILE, bundle:FILE, payload:NAME[@VERSION]=FILE, resources:PATH, boot-images:FILE, boot-image:FILE; on the command line also kubernetes:VERSION, k3s:VERSION, rke2:VERSION, k0s:VERSION, manifests:PATH, kustomize:DIR, chart:REF, cluster:[CONTEXT], tracks:[FILE], os-image:NAME"

// Source is one thing to put into a bundle.
type Source struct {
	// Kind is oci, oci-archive, docker-archive, docker, list, bundle, payload, resources, boot-images
	// or boot-image.
	Kind string
	// As gives the one image of the source another name (NAME=SOURCE), and is
	// the name of a payload.
	As string
	// Version of a payload, if given.
	Version string
	// Path of a folder or file, or the reference in a registry.
	Path string
	// Tag picks one image of a layout.
	Tag string
}

// ParseSource reads a source as the command line names it.
func ParseSource(s string) (Source, error) {
	if as, kind, found := cutName(s); found {
		return parseNamed(s, as, kind, s[len(as)+len(kind)+2:])
	}
	kind, rest, ok := strings.Cut(s, ":")
	if expanded[kind] {
		return Source{}, inputf("source %q: name %s: on the command line of refit bundle create, not in a list", s, kind)
	}
	src := Source{Kind: kind, Path: rest}
	if !ok || !src.split(rest) {
		return Source{}, inputf("source %q: no kind of source; use %s", s, sourceHelp)
	}
	if src.Path == "" {
		return Source{}, inputf("source %q is not complete; use %s", s, sourceHelp)
	}
	return src, nil
}

// split reads what follows the kind; it is false for a kind that is unknown.
func (src *Source) split(rest string) bool {
	switch src.Kind {
	case sourceLayout, sourceArchive, sourceDocker:
		src.Path, src.Tag = cutTag(rest)
	case sourceRegistry:
		src.Path = strings.TrimPrefix(rest, "//")
	case sourcePayload:
		var name string
		name, src.Path, _ = strings.Cut(rest, "=")
		src.As, src.Version, _ = strings.Cut(name, "@")
	case sourceList, sourceBundle, sourceObjects, sourceStream, sourceBoot:
	default:
		return false
	}
	return true
}

// cutName splits NAME=KIND:... where the image name holds colons itself.
func cutName(s string) (as, kind string, found bool) {
	for _, k := range []string{sourceLayout, sourceArchive, sourceDocker, sourceRegistry} {
		if i := strings.Index(s, "="+k+":"); i > 0 && !strings.HasPrefix(s, sourcePayload+":") {
			return s[:i], k, true
		}
	}
	return "", "", false
}

func parseNamed(s, as, kind, rest string) (Source, error) {
	name, _, err := oci.ParseName(as)
	if err != nil {
		return Source{}, inputf("source %q: %w", s, err)
	}
	src, err := ParseSource(kind + ":" + rest)
	src.As = name
	return src, err
}

// cutTag splits PATH[:TAG]; a path that exists as it stands has no tag.
func cutTag(s string) (p, tag string) {
	if _, err := os.Lstat(s); err == nil {
		return s, ""
	}
	p, tag, _ = strings.Cut(s, ":")
	return p, tag
}

// payloadRoot is one file for the nodes.
type payloadRoot struct {
	name, version, platform string
	mode                    uint32
	digest                  string
	size                    int64
	store                   oci.Store
	explicit                bool // named by the caller, not taken over from a bundle
}

// inputs is what the sources hold.
type inputs struct {
	images   []oci.Root
	payloads []payloadRoot
	// proofs are archives of proofs of other bundles, layouts the directories that may have artifacts.
	proofs  []payloadRoot
	layouts []string
	closers []io.Closer
}

func (in *inputs) close() {
	for _, c := range in.closers {
		c.Close()
	}
}

// parallelLookups bounds how many references are resolved at a time.
const parallelLookups = 8

// open resolves the sources; close the result also after an error.
func open(ctx context.Context, sources []string) (*inputs, error) {
	in := &inputs{}
	var list []Source
	for _, s := range sources {
		src, err := ParseSource(s)
		if err != nil {
			return in, err
		}
		if src.Kind != sourceList {
			list = append(list, src)
			continue
		}
		more, err := readList(src.Path)
		if err != nil {
			return in, err
		}
		list = append(list, more...)
	}
	registries, err := oci.NewRegistries()
	if err != nil {
		return in, err
	}
	parts := make([]inputs, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLookups)
	for i, src := range list {
		g.Go(func() error { return parts[i].open(ctx, src, registries) })
	}
	err = g.Wait()
	for _, p := range parts {
		in.images = append(in.images, p.images...)
		rest, carried := splitProofs(p.payloads)
		in.payloads = append(in.payloads, rest...)
		in.proofs = append(in.proofs, carried...)
		in.layouts = append(in.layouts, p.layouts...)
		in.closers = append(in.closers, p.closers...)
	}
	if err != nil {
		return in, err
	}
	return in, in.nameBootImages(ctx)
}

// readList reads a list of sources or image references, one a line.
func readList(file string) ([]Source, error) {
	f, err := fsutil.OpenRegular(file)
	if err != nil {
		return nil, inputf("list of images: %w", err)
	}
	defer f.Close()
	var out []Source
	sc := bufio.NewScanner(f)
	for line := 1; sc.Scan(); line++ {
		text, _, _ := strings.Cut(sc.Text(), "#")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		src, err := listLine(text)
		if err != nil {
			return nil, inputf("%s line %d: %w", file, line, err)
		}
		out = append(out, src)
	}
	return out, sc.Err()
}

// listLine takes a plain image reference for one in a registry.
func listLine(text string) (Source, error) {
	src, err := ParseSource(text)
	if err == nil && src.Kind == sourceList {
		return src, inputf("a list in a list")
	}
	if err == nil {
		return src, nil
	}
	if _, _, refErr := oci.ParseName(text); refErr != nil {
		return src, refErr
	}
	return Source{Kind: sourceRegistry, Path: text}, nil
}

func (in *inputs) open(ctx context.Context, src Source, registries *oci.Registries) error {
	switch src.Kind {
	case sourceLayout, sourceArchive, sourceDocker, sourceRegistry:
	case sourceBundle:
		return in.openBundle(src.Path)
	case sourcePayload:
		return in.openPayload(src)
	default:
		return in.openText(src)
	}
	roots, err := in.openImages(ctx, src, registries)
	if err != nil {
		return asInput(err)
	}
	if src.As != "" {
		if len(roots) != 1 {
			return inputf("%s has %d images: only one can be called %s, name it with :TAG", src.Path, len(roots), src.As)
		}
		roots[0].Name, roots[0].Bare = src.As, false
	}
	in.images = append(in.images, roots...)
	return nil
}

// openImages opens a source of images.
func (in *inputs) openImages(ctx context.Context, src Source, registries *oci.Registries) ([]oci.Root, error) {
	switch src.Kind {
	case sourceLayout:
		in.layouts = append(in.layouts, src.Path)
		return oci.OpenLayout(src.Path, src.Tag)
	case sourceArchive:
		roots, c, err := oci.OpenArchive(src.Path, src.Tag)
		if err == nil {
			in.closers = append(in.closers, c)
		}
		return roots, err
	case sourceDocker:
		return in.openDocker(ctx, src)
	}
	root, err := registries.Open(ctx, src.Path)
	return []oci.Root{root}, err
}

// openText takes what is no image and no file of a node.
func (in *inputs) openText(src Source) error {
	switch src.Kind {
	case sourceStream:
		return in.openStream(src.Path)
	case sourceBoot:
		return in.openBootImage(src.Path)
	}
	return in.openObjects(src.Path)
}

// asInput marks errors about what was typed.
func asInput(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &InputError{err}
}

func (in *inputs) openPayload(src Source) error {
	p, err := inspectPayload(src)
	if err != nil {
		return err
	}
	in.payloads = append(in.payloads, p)
	return nil
}

func (in *inputs) openBundle(path string) error {
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		return asInput(err)
	}
	in.closers = append(in.closers, f)
	if err := f.CheckSize(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m := f.Header().Metadata
	s := newBundleStore(path, f)
	in.images = append(in.images, s.images()...)
	for _, p := range m.Payloads {
		in.payloads = append(in.payloads, payloadRoot{name: p.Name, version: p.Version, platform: p.Platform, mode: p.Mode, digest: p.Digest, size: p.Size, store: s})
	}
	return nil
}

// bundleStore opens blobs of another bundle, verified.
type bundleStore struct {
	path  string
	f     *bundlereader.File
	blobs map[string]int
}

func newBundleStore(path string, f *bundlereader.File) *bundleStore {
	s := &bundleStore{path: path, f: f, blobs: map[string]int{}}
	for i, b := range f.Header().Metadata.Blobs {
		s.blobs[b.Digest] = i
	}
	return s
}

func (s *bundleStore) images() (out []oci.Root) {
	m := s.f.Header().Metadata
	for _, img := range m.Images {
		out = append(out, oci.Root{Name: img.Name, Group: img.Group, Sparse: true, Store: s,
			Desc: ocispec.Descriptor{MediaType: img.MediaType, Digest: digestOf(img.Digest), Size: m.Blobs[s.blobs[img.Digest]].Size}})
	}
	return out
}

// OpenImages opens the images of a bundle. Close the closer when all blobs were read.
func OpenImages(path string) ([]oci.Root, io.Closer, error) {
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		return nil, nil, err
	}
	return newBundleStore(path, f).images(), f, nil
}

func (s *bundleStore) String() string { return s.path }

func (s *bundleStore) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	i, ok := s.blobs[d.Digest.String()]
	if !ok {
		return nil, fmt.Errorf("bundle %s has no blob %s: %w", s.path, d.Digest, fs.ErrNotExist)
	}
	return io.NopCloser(s.f.Blob(i)), nil
}

// fileStore is a payload's file.
type fileStore string

func (s fileStore) String() string { return string(s) }

func (s fileStore) Open(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return fsutil.OpenRegular(filepath.Clean(string(s)))
}
