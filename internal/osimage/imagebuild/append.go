package imagebuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/registry"
)

// Media types of Docker's family.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerLayer    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// AppendRequest has the parts of an image.
type AppendRequest struct {
	// Base as it was resolved: its descriptor has a digest.
	Base oci.Root
	// Entries of the layer.
	Entries []osimage.LayerEntry
	// Labels of the image, additional to those of the base.
	Labels map[string]string
	// Platforms of the base's index to use, for example linux/amd64; empty means all.
	Platforms []string
}

// AppendedImage is the result of Append.
type AppendedImage struct {
	// Desc is the top: an index if the base was one, else a manifest.
	Desc ocispec.Descriptor
	// Blobs that are new: layer, configurations.
	Blobs []registry.Blob
	// Manifests that are new, the top last.
	Manifests []registry.Blob
	// Kept are the base's layers.
	Kept []ocispec.Descriptor
	// Platforms of the image.
	Platforms []string

	base oci.Store
	// from is the base's repository if it is in a registry.
	from string
}

// Digest of the image.
func (i *AppendedImage) Digest() string { return i.Desc.Digest.String() }

// Append makes the image. Nothing is written anywhere.
func Append(ctx context.Context, q AppendRequest) (*AppendedImage, error) {
	plain, zipped, err := layerOf(q.Entries)
	if err != nil {
		return nil, err
	}
	img := &AppendedImage{base: q.Base.Store}
	if oci.IsRemote(q.Base.Store) {
		img.from = q.Base.Store.String()
	}
	b := &builder{ctx: ctx, q: q, img: img, diffID: digestOf(plain), layer: zipped}
	img.Blobs = append(img.Blobs, registry.Blob{Digest: digestOf(zipped), MediaType: ocispec.MediaTypeImageLayerGzip, Data: zipped})
	if img.Desc, err = b.visit(q.Base.Desc); err != nil {
		return nil, fmt.Errorf("base %s@%s: %w", q.Base.Name, q.Base.Desc.Digest, err)
	}
	for _, want := range q.Platforms {
		if !slices.Contains(img.Platforms, want) {
			return nil, fmt.Errorf("base %s@%s has no platform %s; it has %s", q.Base.Name, q.Base.Desc.Digest, want, strings.Join(img.Platforms, ", "))
		}
	}
	return img, nil
}

type builder struct {
	ctx    context.Context
	q      AppendRequest
	img    *AppendedImage
	diffID string
	layer  []byte
}

func (b *builder) visit(d ocispec.Descriptor) (ocispec.Descriptor, error) {
	switch d.MediaType {
	case ocispec.MediaTypeImageIndex, dockerList:
		return b.index(d)
	case ocispec.MediaTypeImageManifest, dockerManifest:
		return b.manifest(d)
	}
	return d, fmt.Errorf("%s has media type %q, which is no image", d.Digest, d.MediaType)
}

// object is a document of which only parts are known; the rest is kept.
type object map[string]json.RawMessage

func (o object) set(key string, v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		o[key] = raw
	}
	return err
}

func (o object) get(key string, into any) error {
	if raw, ok := o[key]; ok {
		return json.Unmarshal(raw, into)
	}
	return nil
}

// labelled sets labels or annotations under a key.
func (o object) labelled(key string, more map[string]string) error {
	have := map[string]string{}
	if err := o.get(key, &have); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if have == nil {
		have = map[string]string{}
	}
	for k, v := range more {
		have[k] = v
	}
	return o.set(key, have)
}

func (b *builder) read(d ocispec.Descriptor) (object, error) {
	raw, err := oci.Fetch(b.ctx, b.q.Base.Store, d)
	if err != nil {
		return nil, err
	}
	o := object{}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, err)
	}
	return o, nil
}

// put keeps a document as a blob of the image. Keys are sorted, so that the same
// document gives the same bytes.
func (b *builder) put(to *[]registry.Blob, mediaType string, o object) (ocispec.Descriptor, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := digestOf(raw)
	*to = append(*to, registry.Blob{MediaType: mediaType, Digest: d, Data: raw})
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.Digest(d), Size: int64(len(raw))}, nil
}

func (b *builder) index(d ocispec.Descriptor) (ocispec.Descriptor, error) {
	o, err := b.read(d)
	if err != nil {
		return d, err
	}
	var children, made []ocispec.Descriptor
	if err := o.get("manifests", &children); err != nil {
		return d, fmt.Errorf("index %s: %w", d.Digest, err)
	}
	for _, c := range children {
		if c.Platform == nil || c.Platform.OS == "unknown" || !b.wanted(platformOf(*c.Platform)) {
			continue // an attestation, or a platform that was not requested
		}
		n, err := b.visit(c)
		if err != nil {
			return d, err
		}
		n.Platform = c.Platform
		made = append(made, n)
	}
	if len(made) == 0 {
		return d, fmt.Errorf("index %s has none of the platforms that are wanted", d.Digest)
	}
	err = o.set("manifests", made)
	if d.MediaType == ocispec.MediaTypeImageIndex { // Docker's family has no annotations
		err = errors.Join(err, o.labelled("annotations", b.origin()))
	}
	if err != nil {
		return d, err
	}
	return b.put(&b.img.Manifests, d.MediaType, o)
}

func (b *builder) wanted(platform string) bool {
	return len(b.q.Platforms) == 0 || slices.Contains(b.q.Platforms, platform)
}

func platformOf(p ocispec.Platform) string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// origin are the annotations that name the base.
func (b *builder) origin() map[string]string {
	return map[string]string{ocispec.AnnotationBaseImageDigest: b.q.Base.Desc.Digest.String(), ocispec.AnnotationBaseImageName: b.q.Base.Name}
}

func (b *builder) manifest(d ocispec.Descriptor) (ocispec.Descriptor, error) {
	o, err := b.read(d)
	if err != nil {
		return d, err
	}
	var config ocispec.Descriptor
	var layers []ocispec.Descriptor
	if err := errors.Join(o.get("config", &config), o.get("layers", &layers)); err != nil {
		return d, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	if config, err = b.config(config, len(layers)); err != nil {
		return d, err
	}
	for _, l := range layers {
		if !slices.ContainsFunc(b.img.Kept, func(k ocispec.Descriptor) bool { return k.Digest == l.Digest }) {
			b.img.Kept = append(b.img.Kept, ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
		}
	}
	kind := ocispec.MediaTypeImageLayerGzip
	if d.MediaType == dockerManifest {
		kind = dockerLayer
	}
	layers = append(layers, ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(b.layer), Size: int64(len(b.layer))})
	if err := errors.Join(o.set("config", config), o.set("layers", layers)); err != nil {
		return d, err
	}
	if d.MediaType == ocispec.MediaTypeImageManifest {
		if err := o.labelled("annotations", b.origin()); err != nil {
			return d, err
		}
	}
	return b.put(&b.img.Manifests, d.MediaType, o)
}

// config edits the base's configuration: one more layer, labels. Its time stays
// the base's.
func (b *builder) config(d ocispec.Descriptor, layers int) (ocispec.Descriptor, error) {
	o, err := b.read(d)
	if err != nil {
		return d, err
	}
	var p ocispec.Platform
	rootfs, run := object{}, object{}
	var diffs []string
	var history []object
	if err := errors.Join(o.get("os", &p.OS), o.get("architecture", &p.Architecture), o.get("variant", &p.Variant), o.get("rootfs", &rootfs), o.get("config", &run), o.get("history", &history),
		rootfs.get("diff_ids", &diffs)); err != nil {
		return d, fmt.Errorf("configuration %s: %w", d.Digest, err)
	}
	if len(diffs) != layers || p.Architecture == "" {
		return d, fmt.Errorf("configuration %s speaks of %d layers, its manifest of %d: it is no image that can be booted", d.Digest, len(diffs), layers)
	}
	if run == nil {
		run = object{}
	}
	labels := b.origin()
	for k, v := range b.q.Labels {
		labels[k] = v
	}
	if err := errors.Join(run.labelled("Labels", labels), rootfs.set("diff_ids", append(diffs, b.diffID)), o.set("rootfs", rootfs), o.set("config", run)); err != nil {
		return d, err
	}
	if err := b.history(o, history, layers); err != nil {
		return d, err
	}
	b.img.Platforms = append(b.img.Platforms, platformOf(p))
	return b.put(&b.img.Blobs, d.MediaType, o)
}

// history gets an entry if the base has one for each of its layers: tools count.
func (b *builder) history(o object, history []object, layers int) error {
	full := 0
	for _, h := range history {
		var empty bool
		if err := h.get("empty_layer", &empty); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		if !empty {
			full++
		}
	}
	if full != layers || layers == 0 {
		return nil
	}
	entry := object{}
	if created, ok := o["created"]; ok {
		entry["created"] = created
	}
	if err := entry.set("created_by", "refit: configuration of the node"); err != nil {
		return err
	}
	return o.set("history", append(history, entry))
}
