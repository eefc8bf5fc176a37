package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Bounds of the lists of a bundle. Every member is checked before the next one is read and
// has a minimum length, so the sizes of the parts bound the lists too. These bounds are
// far above what any site has.
const (
	maxImages     = 8192
	maxPayloads   = 4096
	maxPlatforms  = 64
	maxConstraint = 16
	maxBlobs      = 1 << 15
	maxReferences = 1 << 18 // of images to blobs, all together
)

// topManifest is the OCI image index whose digest names the bundle.
type topManifest struct {
	title, version string
	// meta is the metadata manifest, images are the others.
	meta   descriptor
	images []descriptor
}

// metaManifest is the OCI artifact manifest that carries the metadata.
type metaManifest struct {
	config, chunks descriptor
	payloads       []descriptor
}

// descriptors reads the descriptors of a manifest one by one.
type descriptors struct {
	s       *scanner
	d       descriptor
	members members
}

func newDescriptors(s *scanner) *descriptors {
	r := &descriptors{s: s}
	names := members{AnnotationRefName: s.text(&r.d.refName), AnnotationImage: s.text(&r.d.image)}
	r.members = members{
		"mediaType": s.often(&r.d.MediaType), "artifactType": s.often(&r.d.ArtifactType), "digest": s.text(&r.d.Digest), "size": s.number(&r.d.Size),
		"annotations": func() error { return s.object(names) },
	}
	return r
}

func (r *descriptors) next() (descriptor, error) {
	r.d = descriptor{}
	if err := r.s.object(r.members); err != nil {
		return descriptor{}, err
	}
	switch {
	case !ValidDigest(r.d.Digest):
		return descriptor{}, fmt.Errorf("has a descriptor with the bad digest %.80q", r.d.Digest)
	case !mediaForm.MatchString(r.d.MediaType), r.d.Size < 0:
		return descriptor{}, fmt.Errorf("has a descriptor of %s with a bad media type or size", r.d.Digest)
	case r.d.image == r.d.refName:
		r.d.image = r.d.refName // one text instead of two
	}
	return r.d, nil
}

// decodeTop reads the top manifest and compares index.json with it.
func (in *intake) decodeTop(p part, from io.Reader) error {
	in.h.Digest = digestOfPath(p.name)
	s := newScanner(from)
	each := newDescriptors(s)
	var version int64
	var media, artifact string
	implied := newImpliedIndex(in.h.Digest, p.size)
	n := 0
	err := s.object(members{
		"schemaVersion": s.number(&version), "mediaType": s.text(&media), "artifactType": s.text(&artifact),
		"manifests": func() error {
			return s.array(1+maxImages, "images", func() error {
				d, err := each.next()
				if n++; err != nil {
					return err
				}
				if n == 1 {
					in.top.meta = d
					return nil
				}
				implied.add(d)
				in.top.images = append(in.top.images, d)
				return nil
			})
		},
		"annotations": func() error {
			return s.object(members{AnnotationTitle: s.text(&in.top.title), AnnotationVersion: s.text(&in.top.version)})
		},
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return p.corrupt(err.Error())
	}
	if version != 2 || media != MediaTypeIndex || artifact != ArtifactType {
		return p.corrupt("is not the OCI index of a bundle")
	}
	if n == 0 || in.top.meta.ArtifactType != ArtifactType || in.top.meta.MediaType != MediaTypeManifest {
		return p.corrupt("does not begin with the metadata manifest")
	}
	return in.compareIndex(implied)
}

// impliedIndex is the only index.json that a bundle with a top manifest may have.
// It is made piece by piece and compared by its hash, so that it is never in memory.
type impliedIndex struct {
	sum  interface{ Sum([]byte) []byte }
	to   io.Writer
	size int64
}

func newImpliedIndex(digest string, size int64) *impliedIndex {
	sum := sha256.New()
	x := &impliedIndex{sum: sum, to: sum}
	x.write(indexBegin(digest, size))
	return x
}

func (x *impliedIndex) write(b []byte) {
	n, _ := x.to.Write(b) // a hash takes everything
	x.size += int64(n)
}

func (x *impliedIndex) add(d descriptor) {
	x.write([]byte{','})
	x.write(canonical(imageDescriptor(d.refName, d.MediaType, d.Digest, d.Size)))
}

// compareIndex compares index.json as found with what is implied.
func (in *intake) compareIndex(x *impliedIndex) error {
	x.write([]byte(indexEnd))
	if in.parts[entryIndex].size != x.size {
		return in.parts[entryIndex].bad(fmt.Sprintf("has %d bytes, the top manifest implies %d", in.parts[entryIndex].size, x.size))
	}
	if !bytes.Equal(x.sum.Sum(nil), in.parts[entryIndex].sum[:]) {
		return in.parts[entryIndex].bad("differs from what the top manifest implies")
	}
	return nil
}

func (in *intake) decodeMetaManifest(p part, from io.Reader) error {
	s := newScanner(from)
	each := newDescriptors(s)
	n := 0
	err := s.object(members{
		"config": func() (err error) {
			in.meta.config, err = each.next()
			return err
		},
		"layers": func() error {
			return s.array(1+maxPayloads, "payloads", func() error {
				d, err := each.next()
				if n++; n == 1 {
					in.meta.chunks = d
				} else if err == nil {
					in.meta.payloads = append(in.meta.payloads, d)
				}
				return err
			})
		},
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return p.corrupt(err.Error())
	}
	if in.meta.config.MediaType != MediaTypeMetadata || n == 0 || in.meta.chunks.MediaType != MediaTypeChunks {
		return p.corrupt("has no metadata or no chunk table")
	}
	return nil
}

func (in *intake) decodeMetadata(p part, from io.Reader) error {
	in.h.MetadataDigest = digestOfPath(p.name)
	m := &Metadata{}
	in.h.Metadata = m
	s := newScanner(from)
	r := &metadataReader{s: s, m: m}
	err := s.object(r.members())
	if err == nil {
		err = s.end()
	}
	if r.version > FormatVersion {
		return &TooNewError{Digest: in.h.Digest, FormatVersion: int(min(r.version, 1<<30)), MinRefit: fmt.Sprintf("%.40q", m.MinRefit)}
	}
	if err != nil {
		return &CorruptError{Part: "metadata", Digest: in.h.MetadataDigest, Offset: p.at, Found: err.Error()}
	}
	if found := m.check(); found != "" {
		return p.bad(found)
	}
	if found := matchTop(&in.top, m); found != "" {
		return in.parts[entryTop].corrupt(found)
	}
	if found := matchLayers(in.meta.payloads, m.Payloads); found != "" {
		return in.parts[entryMetaManifest].corrupt(found)
	}
	in.top.images, in.meta.payloads = nil, nil
	return nil
}

// metadataReader reads the metadata member by member.
type metadataReader struct {
	s       *scanner
	m       *Metadata
	version int64
	refs    int
}

func (r *metadataReader) members() members {
	s, m := r.s, r.m
	all := members{
		"formatVersion": func() error {
			err := s.number(&r.version)()
			m.FormatVersion = int(r.version)
			return err
		},
		"minRefit": s.text(&m.MinRefit), "name": s.text(&m.Name), "version": s.text(&m.Version), "kubernetesVersion": s.text(&m.KubernetesVersion),
		"platforms": r.platforms, "constraints": r.constraints, "images": r.images, "payloads": r.payloads, "chunkSize": s.number(&m.ChunkSize), "blobs": r.blobs,
	}
	for name, read := range all {
		if name == "formatVersion" || name == "minRefit" {
			continue
		}
		all[name] = func() error {
			if r.version > FormatVersion { // its members may be anything
				return s.skip()
			}
			return read()
		}
	}
	return all
}

func (r *metadataReader) platforms() error {
	r.m.Platforms = []string{}
	return r.s.array(maxPlatforms, "platforms", func() error {
		var p string
		err := r.s.text(&p)()
		r.m.Platforms = append(r.m.Platforms, p)
		return err
	})
}

func (r *metadataReader) constraints() error {
	var c Constraint
	fields := members{"name": r.s.text(&c.Name), "min": r.s.text(&c.Min), "max": r.s.text(&c.Max)}
	return r.s.array(maxConstraint, "constraints", func() error {
		c = Constraint{}
		if err := r.s.object(fields); err != nil {
			return err
		}
		r.m.Constraints = append(r.m.Constraints, c)
		return nil
	})
}

func (r *metadataReader) images() error {
	s, m := r.s, r.m
	var img Image
	fields := members{
		"name": s.text(&img.Name), "digest": s.text(&img.Digest), "mediaType": s.often(&img.MediaType), "group": s.often(&img.Group),
		"size": s.number(&img.Size), "unpackedSize": s.number(&img.UnpackedSize), "blobs": func() error { return r.references(&img) },
	}
	m.Images = []Image{}
	return s.array(maxImages, "images", func() error {
		img = Image{}
		if err := s.object(fields); err != nil {
			return err
		}
		if found := m.checkImage(len(m.Images), img); found != "" {
			return errors.New(found)
		}
		m.Images = append(m.Images, img)
		return nil
	})
}

// references reads the blobs of an image: ascending numbers.
func (r *metadataReader) references(img *Image) error {
	img.Blobs = []int{}
	return r.s.array(maxBlobs, "blobs of an image", func() error {
		var n int64
		if err := r.s.number(&n)(); err != nil {
			return err
		}
		if r.refs++; r.refs > maxReferences {
			return fmt.Errorf("has images with more than %d blobs together", maxReferences)
		}
		if have := len(img.Blobs); n < 0 || n >= maxBlobs || have > 0 && int64(img.Blobs[have-1]) >= n {
			return fmt.Errorf("image %.80q: blob %d is not in order", img.Name, n)
		}
		img.Blobs = append(img.Blobs, int(n))
		return nil
	})
}

func (r *metadataReader) payloads() error {
	s, m := r.s, r.m
	var p Payload
	var mode, blob int64
	fields := members{
		"name": s.text(&p.Name), "version": s.often(&p.Version), "platform": s.often(&p.Platform), "digest": s.text(&p.Digest),
		"size": s.number(&p.Size), "mode": s.number(&mode), "blob": s.number(&blob),
	}
	return s.array(maxPayloads, "payloads", func() error {
		p, mode, blob = Payload{}, 0, 0
		if err := s.object(fields); err != nil {
			return err
		}
		if p.Mode, p.Blob = uint32(mode), int(blob); int64(p.Mode) != mode {
			return fmt.Errorf("payload %.80q: mode %d", p.Name, mode)
		}
		if found := m.checkPayloadOrder(len(m.Payloads), p); found != "" {
			return errors.New(found)
		}
		m.Payloads = append(m.Payloads, p)
		return nil
	})
}

func (r *metadataReader) blobs() error {
	s, m := r.s, r.m
	var b Blob
	fields := members{"digest": s.text(&b.Digest), "size": s.number(&b.Size), "unpackedSize": s.number(&b.UnpackedSize)}
	m.Blobs = []Blob{}
	return s.array(maxBlobs, "blobs", func() error {
		b = Blob{}
		if err := s.object(fields); err != nil {
			return err
		}
		if found := checkBlob(len(m.Blobs), b); found != "" {
			return errors.New(found)
		}
		m.Blobs = append(m.Blobs, b)
		return nil
	})
}

// checkTable compares the digests of chunks and blobs where they must be equal:
// for blobs of one chunk. r is the chunk table, whose length is right.
func (m *Metadata) checkTable(r io.Reader) string {
	var want, got [HashSize]byte
	buf := newScanner(r).r
	for _, b := range m.Blobs {
		n := ChunkCount(b.Size, m.ChunkSize)
		if n == 0 && b.Digest != DigestOf(nil) {
			return fmt.Sprintf("blob %s is empty but has not the digest of nothing", b.Digest)
		}
		if n != 1 {
			if _, err := io.CopyN(io.Discard, buf, n*HashSize); err != nil {
				return "cannot be read: " + err.Error()
			}
			continue
		}
		if _, err := io.ReadFull(buf, got[:]); err != nil {
			return "cannot be read: " + err.Error()
		}
		if _, err := hex.Decode(want[:], []byte(b.Digest[len(digestPrefix):])); err != nil || got != want {
			return fmt.Sprintf("blob %s is one chunk, whose digest differs", b.Digest)
		}
	}
	return ""
}
