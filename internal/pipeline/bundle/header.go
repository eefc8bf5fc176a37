package bundle

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// MaxHeaderSize bounds the header in bytes: a larger one is refused unread.
const MaxHeaderSize = 64 << 20

// Limits of the header's parts in bytes, with room for all that a part may list.
// JSON is held tighter than the chunk table because it takes more than its size in
// memory.
const (
	maxManifestSize = 4 << 20
	maxMetadataSize = 8 << 20
)

// Header is everything of a bundle before its blobs, checked. A caller that trusts its
// Digest trusts every byte of the file.
type Header struct {
	// Digest of the top manifest: the digest of the bundle.
	Digest string
	// Signatures as found. They are not checked against any key: SignedBy does.
	Signatures []Envelope
	// Metadata is what the bundle says of itself.
	Metadata *Metadata
	// MetadataDigest is the digest of the metadata blob.
	MetadataDigest string
	// Chunks is the chunk table, nil in a summary.
	Chunks *ChunkTable
	// Raw is the file's beginning, up to and including the padded chunk table; nil in
	// a summary.
	Raw []byte

	size    int64 // of the header
	slotAt  int64
	offsets []int64 // of the blobs' bytes
	end     int64   // size of the file
}

// entry kinds of the header, in their order.
const (
	entryLayout = iota
	entryIndex
	entryTop
	entrySignatures
	entryMetaManifest
	entryMetadata
	entryChunks
	entryCount
)

// entryRule says which name and size an entry of the header may have. An empty
// name means a blob.
var entryRules = [entryCount]struct {
	part, name string
	maxSize    int64
}{
	{"oci-layout", nameLayout, int64(len(layoutContent))},
	{"index.json", nameIndex, maxManifestSize},
	{"top manifest", "", maxManifestSize},
	{"signatures", nameSignatures, SignatureSlotSize},
	{"metadata manifest", "", maxManifestSize},
	{"metadata", "", maxMetadataSize},
	{"chunk table", "", MaxHeaderSize},
}

// HeaderSize says how long the header is, from the bytes a file begins with.
// If the answer is at most len(prefix), it is the size of the header.
// Otherwise read at least up to the answer and ask again; the answer never
// exceeds MaxHeaderSize. Bytes that are no bundle give ErrNotBundle.
func HeaderSize(prefix []byte) (int64, error) {
	if !couldBegin(prefix[:min(len(prefix), BlockSize)]) {
		return 0, ErrNotBundle
	}
	var at int64
	for kind := range entryCount {
		if int64(len(prefix)) < at+BlockSize {
			return at + BlockSize, nil
		}
		_, size, err := headerEntry(kind, prefix[at:at+BlockSize], at)
		if err != nil {
			return 0, err
		}
		if at += BlockSize + PaddedSize(size); int64(len(prefix)) < at {
			return at, nil
		}
	}
	return at, nil
}

// headerEntry reads the tar header of an entry of the header and checks that
// it may stand there.
func headerEntry(kind int, block []byte, at int64) (name string, size int64, err error) {
	if name, size, err = tarEntry(block, at); err != nil {
		return "", 0, err
	}
	if err := checkRule(kind, name, size, at); err != nil {
		return "", 0, err
	}
	if at+BlockSize+PaddedSize(size) > MaxHeaderSize {
		return "", 0, &CorruptError{Part: entryRules[kind].part, Offset: at, Found: fmt.Sprintf("the header would be larger than %d bytes", MaxHeaderSize)}
	}
	return name, size, nil
}

// couldBegin reports whether b may be the beginning of a bundle.
func couldBegin(b []byte) bool {
	want := TarHeader(nameLayout, int64(len(layoutContent)))
	return bytes.HasPrefix(want[:], b)
}

func checkRule(kind int, name string, size, at int64) error {
	rule := entryRules[kind]
	ok := name == rule.name
	if rule.name == "" {
		ok = strings.HasPrefix(name, blobPrefix) && ValidDigest(digestPrefix+name[len(blobPrefix):])
	}
	if !ok && kind <= entrySignatures {
		return fmt.Errorf("%w: an archive whose entry %d is %q where a bundle has its %s", ErrNotBundle, kind+1, name, rule.part)
	}
	if !ok {
		return &CorruptError{Part: "tar header of the " + rule.part, Offset: at, Found: fmt.Sprintf("names %q", name)}
	}
	if size > rule.maxSize {
		return &CorruptError{Part: "tar header of the " + rule.part, Offset: at, Found: fmt.Sprintf("%d bytes are more than the %d allowed", size, rule.maxSize)}
	}
	return nil
}

// place computes where the blobs are.
func (h *Header) place() {
	at := h.size
	h.offsets = make([]int64, len(h.Metadata.Blobs))
	for i, b := range h.Metadata.Blobs {
		h.offsets[i] = at + BlockSize
		at += BlockSize + PaddedSize(b.Size)
	}
}

// measure computes where the file ends.
func (h *Header) measure() {
	h.end = h.size + EndSize
	for _, b := range h.Metadata.Blobs {
		h.end += BlockSize + PaddedSize(b.Size)
	}
}

// HeaderSize is the size of the header in bytes.
func (h *Header) HeaderSize() int64 { return h.size }

// ChunkCount is how many chunks the bundle has.
func (h *Header) ChunkCount() int64 { return h.Metadata.chunkCount() }

// BlobOffset is where the bytes of a blob begin in the file; its tar header is
// the block before.
func (h *Header) BlobOffset(blob int) int64 { return h.offsets[blob] }

// ChunkOffset is where the bytes of chunk n begin in the file.
func (h *Header) ChunkOffset(n int) int64 {
	c := h.Chunks.Chunk(n)
	return h.offsets[c.Blob] + c.Offset
}

// FileSize is the size of the whole bundle in bytes.
func (h *Header) FileSize() int64 { return h.end }

// SlotOffset is where the content of the signature slot begins; it has
// SignatureSlotSize bytes.
func (h *Header) SlotOffset() int64 { return h.slotAt }

// ImageByName finds an image by its full name with tag, nil if there is none.
func (h *Header) ImageByName(name string) *Image {
	for i := range h.Metadata.Images {
		if h.Metadata.Images[i].Name == name {
			return &h.Metadata.Images[i]
		}
	}
	return nil
}

// ImageForPin finds the image of this bundle that a hold list names: the one of its name and
// digest, or, of an image that was made on the site, its base. It is nil if there is
// none.
func (h *Header) ImageForPin(i model.PinSetImage) *Image {
	if i.Base != "" {
		return h.ImageByDigest(i.Base)
	}
	if have := h.ImageByName(i.Name); have != nil && have.Digest == i.Digest {
		return have
	}
	return nil
}

// ImageByDigest finds an image by its digest, nil if there is none; of several names
// the first.
func (h *Header) ImageByDigest(digest string) *Image {
	for i := range h.Metadata.Images {
		if h.Metadata.Images[i].Digest == digest {
			return &h.Metadata.Images[i]
		}
	}
	return nil
}

// PayloadByName finds the payload for a platform; one that is for any platform
// is taken if there is none for this one. It is nil if there is neither.
func (h *Header) PayloadByName(name, platform string) *Payload {
	var anywhere *Payload
	for i := range h.Metadata.Payloads {
		p := &h.Metadata.Payloads[i]
		if p.Name != name {
			continue
		}
		if p.Platform == platform {
			return p
		}
		if p.Platform == "" {
			anywhere = p
		}
	}
	return anywhere
}

// UserOf names what uses a blob, for messages: an image, a payload, "" if
// none, and how many others use it too.
func (h *Header) UserOf(blob int) string {
	var first string
	n := 0
	for _, img := range h.Metadata.Images {
		for _, b := range img.Blobs {
			if b == blob {
				if n++; n == 1 {
					first = "image " + img.Name
				}
			}
		}
	}
	for _, p := range h.Metadata.Payloads {
		if p.Blob == blob {
			if n++; n == 1 {
				first = "payload " + p.Name
			}
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s and %d more", first, n-1)
	}
	return first
}
