package bundleserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

const (
	// maxManifest bounds a manifest in bytes, as other registries and runtimes do.
	maxManifest = 4 << 20
	// maxManifests bounds the manifests that New reads, all together, in bytes.
	maxManifests = 512 << 20
	// maxReferrers bounds the descriptions of referrers that stay in memory, in bytes.
	maxReferrers = 16 << 20
	// bufferMemory bounds the chunks that are in memory at the same time, in bytes.
	bufferMemory = 128 << 20
	maxReads     = 32
)

// Server is the registry. Its methods may be called at the same time by several goroutines.
type Server struct {
	log       *slog.Logger
	blobs     map[string]*blob
	manifests map[string]*manifest
	repos     map[string]*repository
	// aliases are names of repositories that clients can write, if their own name has a port.
	aliases map[string]string
	// catalog are the names that clients can write, sorted.
	catalog []string
	// slots has a buffer for each read that may run at the same time.
	slots chan []byte
	stats stats
}

// blob is where a blob is.
type blob struct {
	file   *bundlereader.File
	index  int
	digest string
	size   int64
	// verified is set when all its bytes had the digest. checking lets one goroutine read it.
	mu       sync.Mutex
	verified bool
	checking chan struct{}
}

// manifest is a blob that is served as a manifest.
type manifest struct {
	*blob
	mediaType string
	// missing names the platform of a manifest that an index lists and no bundle has. blob is nil then.
	missing string
}

// repository has the images of one name.
type repository struct {
	name string
	// tags are sorted, digests are theirs.
	tags    []string
	digests map[string]string
	// blobs are the digests of all that is under its images.
	blobs map[string]struct{}
	// referrers are descriptors by the digest of their subject.
	referrers map[string][]referrer
}

type referrer struct {
	artifactType string
	descriptor   json.RawMessage
}

// ConflictError says that two bundles have different images of one name.
type ConflictError struct {
	Name          string
	First, Second string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("image %s differs in bundles %s and %s: serve one of them, or each at an address of its own", e.Name, e.First, e.Second)
}

// New reads the manifests of the bundles' images. It does not close the bundles. A manifest that
// is damaged is logged, and an error for clients that ask for it.
func New(ctx context.Context, log *slog.Logger, files ...*bundlereader.File) (*Server, error) {
	s := &Server{log: log, blobs: map[string]*blob{}, manifests: map[string]*manifest{}, repos: map[string]*repository{}, aliases: map[string]string{}}
	from := map[string]string{}
	var chunk int64 = 1
	for _, f := range files {
		m := f.Header().Metadata
		chunk = max(chunk, m.ChunkSize)
		for _, img := range m.Images {
			r, tag := s.repository(img.Name)
			if have, ok := r.digests[tag]; ok && tag != "" && have != img.Digest {
				return nil, &ConflictError{Name: img.Name, First: from[img.Name], Second: f.Header().Digest}
			}
			from[img.Name] = f.Header().Digest
			s.addImage(f, r, tag, img)
		}
	}
	s.slots = make(chan []byte, min(maxReads, max(1, bufferMemory/chunk)))
	for range cap(s.slots) {
		s.slots <- nil
	}
	w := walk{s: s, ctx: ctx, seen: map[seenKey]bool{}}
	for _, f := range files {
		for _, img := range f.Header().Metadata.Images {
			r, _ := s.repository(img.Name)
			if err := w.manifest(r, descriptor{MediaType: img.MediaType, Digest: img.Digest}, img.Name, maxDepth); err != nil {
				return nil, err
			}
		}
	}
	s.finish()
	return s, nil
}

// SetVerified declares that the caller has read every byte of the bundles with bundlereader.Verify.
func (s *Server) SetVerified() {
	for _, b := range s.blobs {
		b.verified = true
	}
}

// Repositories returns the full names of the repositories, sorted.
func (s *Server) Repositories() []string {
	names := make([]string, 0, len(s.repos))
	for name := range s.repos {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// SplitName splits an image name of a bundle into the repository and the tag, if it has one.
func SplitName(image string) (repository, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, ""
}

func (s *Server) repository(image string) (r *repository, tag string) {
	name, tag := SplitName(image)
	r = s.repos[name]
	if r == nil {
		r = &repository{name: name, digests: map[string]string{}, blobs: map[string]struct{}{}, referrers: map[string][]referrer{}}
		s.repos[name] = r
	}
	return r, tag
}

func (s *Server) addImage(f *bundlereader.File, r *repository, tag string, img bundle.Image) {
	if _, ok := r.digests[tag]; tag != "" && !ok {
		r.tags = append(r.tags, tag)
		r.digests[tag] = img.Digest
	}
	for _, i := range img.Blobs {
		b := f.Header().Metadata.Blobs[i]
		r.blobs[b.Digest] = struct{}{}
		if s.blobs[b.Digest] == nil {
			s.blobs[b.Digest] = &blob{file: f, index: i, digest: b.Digest, size: b.Size, checking: make(chan struct{}, 1)}
		}
	}
}

// nameForm is what a repository may be called by the specification.
var nameForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)

// Alias returns the name under which ordinary clients reach a repository of this registry: the
// name itself, with _ for the colon before a port. It is empty if they cannot write it.
func Alias(repository string) string {
	host, path, _ := strings.Cut(repository, "/")
	name := strings.ToLower(strings.ReplaceAll(host, ":", "_"))
	if path != "" {
		name += "/" + path
	}
	if !nameForm.MatchString(name) {
		return ""
	}
	return name
}

// finish sorts what is listed.
func (s *Server) finish() {
	for _, name := range s.Repositories() {
		slices.Sort(s.repos[name].tags)
		alias := Alias(name)
		if alias == "" {
			continue
		}
		if s.repos[alias] == nil && s.aliases[alias] == "" {
			s.aliases[alias] = name
		}
		s.catalog = append(s.catalog, alias)
	}
	slices.Sort(s.catalog)
	s.catalog = slices.Compact(s.catalog)
}

// descriptor is what an index says of a manifest.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Platform  struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Variant      string `json:"variant"`
	} `json:"platform"`
}

func (d descriptor) platform() string {
	if d.Platform.OS == "" {
		return "this platform"
	}
	return strings.TrimSuffix(d.Platform.OS+"/"+d.Platform.Architecture+"/"+d.Platform.Variant, "/")
}

// document is what a manifest or an index says of others.
type document struct {
	MediaType    string `json:"mediaType"`
	ArtifactType string `json:"artifactType"`
	Config       struct {
		MediaType string `json:"mediaType"`
	} `json:"config"`
	Manifests   []descriptor      `json:"manifests"`
	Subject     *descriptor       `json:"subject"`
	Annotations map[string]string `json:"annotations"`
}

type seenKey struct {
	repo   *repository
	digest string
}

// walk finds the manifests under images.
type walk struct {
	s         *Server
	ctx       context.Context
	seen      map[seenKey]bool
	read      int64
	referrers int
}

// maxDepth is how many manifests are below each other: an index of indexes has three.
const maxDepth = 5

// manifest adds a manifest, and those below it to a depth.
func (w *walk) manifest(r *repository, d descriptor, image string, depth int) error {
	key := seenKey{r, d.Digest}
	if w.seen[key] || depth == 0 {
		return nil
	}
	if _, ok := r.blobs[d.Digest]; !ok {
		w.addMissing(d)
		return nil
	}
	w.seen[key] = true
	doc, err := w.addManifest(r, d, image)
	if err != nil {
		return fmt.Errorf("image %s: %w", image, err)
	}
	for _, child := range doc.Manifests {
		if err := w.manifest(r, child, image, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// addManifest records a manifest that the bundle has. One that cannot be read has an empty document.
func (w *walk) addManifest(r *repository, d descriptor, image string) (document, error) {
	b := w.s.blobs[d.Digest]
	m := w.s.manifests[d.Digest]
	if m == nil || m.blob == nil {
		m = &manifest{blob: b, mediaType: d.MediaType}
		w.s.manifests[d.Digest] = m
	}
	doc, err := w.document(b)
	if w.read > maxManifests {
		return document{}, fmt.Errorf("the manifests are larger than %d bytes in all", maxManifests)
	}
	if err != nil {
		w.s.log.Error("failed to read manifest", "image", image, "digest", d.Digest, "error", err)
		return document{}, w.ctx.Err()
	}
	if m.mediaType == "" {
		m.mediaType = mediaTypeOf(doc)
	}
	return doc, errors.Join(w.ctx.Err(), w.addReferrer(r, b, doc))
}

// maxMissing bounds the missing manifests that are known, so that an index cannot list millions.
const maxMissing = 1 << 16

// addMissing records a manifest that an index lists and its bundle does not have, for the message
// to clients.
func (w *walk) addMissing(d descriptor) {
	if len(w.s.manifests) < maxMissing && w.s.manifests[d.Digest] == nil && bundle.ValidDigest(d.Digest) {
		w.s.manifests[d.Digest] = &manifest{missing: d.platform()}
	}
}

func mediaTypeOf(doc document) string {
	switch {
	case doc.MediaType != "":
		return doc.MediaType
	case doc.Manifests != nil:
		return bundle.MediaTypeIndex
	}
	return bundle.MediaTypeManifest
}

func (w *walk) document(b *blob) (doc document, err error) {
	if b.size > maxManifest {
		return doc, fmt.Errorf("it has %d bytes, more than the %d of a manifest", b.size, maxManifest)
	}
	w.read += b.size
	text, err := io.ReadAll(b.file.Blob(b.index))
	if err != nil {
		return doc, err
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return doc, fmt.Errorf("it is no manifest: %w", err)
	}
	return doc, nil
}

// addReferrer records a manifest with a subject.
func (w *walk) addReferrer(r *repository, b *blob, doc document) error {
	if doc.Subject == nil || !bundle.ValidDigest(doc.Subject.Digest) {
		return nil
	}
	artifact := doc.ArtifactType
	if artifact == "" {
		artifact = doc.Config.MediaType
	}
	text, err := json.Marshal(struct {
		MediaType    string            `json:"mediaType"`
		ArtifactType string            `json:"artifactType,omitempty"`
		Digest       string            `json:"digest"`
		Size         int64             `json:"size"`
		Annotations  map[string]string `json:"annotations,omitempty"`
	}{w.s.manifests[b.digest].mediaType, artifact, b.digest, b.size, doc.Annotations})
	if err != nil {
		return err
	}
	if w.referrers += len(text); w.referrers > maxReferrers {
		return fmt.Errorf("the referrers of images are described by more than %d bytes", maxReferrers)
	}
	r.referrers[doc.Subject.Digest] = append(r.referrers[doc.Subject.Digest], referrer{artifact, text})
	return nil
}
