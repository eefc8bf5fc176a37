package bundle

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// ParseHeader reads and checks a header; raw is exactly the header, as
// HeaderSize measures it, and is kept in the result. It checks that every byte
// follows from the top manifest; whether that one is approved is the caller's
// question: see Decide. Errors: ErrNotBundle, CorruptError, TooNewError.
func ParseHeader(raw []byte) (*Header, error) { return ParseHeaderOf("", raw) }

// ParseHeaderOf is ParseHeader for a header that must be that of the bundle
// digest, for example because a peer sent it: another one is refused before
// anything of it is decoded.
func ParseHeaderOf(digest string, raw []byte) (*Header, error) {
	in := &intake{raw: raw, whole: true, keep: true, want: digest}
	h, err := in.header()
	if err != nil {
		return nil, err
	}
	if in.at < int64(len(raw)) {
		return nil, &CorruptError{Part: "header", Offset: in.at, Found: "more bytes than the header has"}
	}
	return h, nil
}

// ReadHeader reads and checks the header that r begins with, and not a byte more. digest
// is that of the bundle that is expected, "" for any. What is refused costs at most some
// megabytes, for any lengths and lists that it claims: no part is read before the parts
// above it were checked and promised it.
func ReadHeader(r io.Reader, digest string) (*Header, error) {
	return (&intake{r: r, keep: true, want: digest}).header()
}

// ReadSummary is ReadHeader for a caller that only wants to know what a bundle
// says of itself: every byte is checked, Raw and Chunks are not kept.
func ReadSummary(r io.Reader) (*Header, error) {
	return (&intake{r: r}).header()
}

// intake takes a header in, part by part.
type intake struct {
	r     io.Reader
	whole bool // raw is the header already
	keep  bool // the header's bytes are kept in raw
	raw   []byte
	want  string // digest that the bundle must have, "" for any
	at    int64  // how far it was read

	h     *Header
	parts [entryCount]part // as found
	top   topManifest
	slot  []byte
	meta  metaManifest
	table []byte
}

// part is an entry of the header that was read.
type part struct {
	kind int
	name string
	at   int64 // of its content
	size int64
	sum  [HashSize]byte
}

// bad is what is wrong with a part.
func (p part) bad(found string) error {
	return &CorruptError{Part: entryRules[p.kind].part, Offset: p.at, Found: found}
}

// corrupt is bad for a part that is a blob.
func (p part) corrupt(found string) error {
	return &CorruptError{Part: entryRules[p.kind].part, Digest: digestOfPath(p.name), Offset: p.at, Found: found}
}

func (in *intake) header() (*Header, error) {
	in.h = &Header{}
	for kind := range entryCount {
		if err := in.entry(kind); err != nil {
			return nil, err
		}
	}
	sigs, found := decodeSlot(in.slot, in.h.statement())
	if found != "" {
		return nil, &CorruptError{Part: entryRules[entrySignatures].part, Offset: in.h.slotAt, Found: found}
	}
	h := in.h
	h.Signatures, h.size = sigs, in.at
	if in.keep {
		h.Raw = in.raw
		h.Chunks = newChunkTable(h.Metadata, in.table)
		h.place()
	}
	h.measure()
	return h, nil
}

// entry reads one entry: its tar header, its content, its padding.
func (in *intake) entry(kind int) error {
	p := part{kind: kind}
	block, err := in.block()
	if err != nil {
		return err
	}
	if p.name, p.size, err = headerEntry(kind, block, in.at-BlockSize); err != nil {
		return err
	}
	p.at = in.at
	if err := in.promised(p); err != nil {
		return err
	}
	in.parts[kind] = p
	if err := in.content(&in.parts[kind]); err != nil {
		return err
	}
	return in.padding(p)
}

// block reads a tar header.
func (in *intake) block() ([]byte, error) {
	b, err := in.take(BlockSize)
	if first := in.at < BlockSize || in.at == BlockSize && err == nil; first && !couldBegin(b) {
		return nil, ErrNotBundle
	} else if first && err != nil && len(b) == 0 && isEnd(err) {
		return nil, fmt.Errorf("%w: it is empty", ErrNotBundle)
	}
	return b, in.unreadable(err)
}

// take reads n bytes; with an error it returns those that came.
func (in *intake) take(n int64) ([]byte, error) {
	if in.whole {
		b := in.raw[in.at:min(in.at+n, int64(len(in.raw)))]
		in.at += int64(len(b))
		if int64(len(b)) < n {
			return b, io.ErrUnexpectedEOF
		}
		return b, nil
	}
	if !in.keep {
		b := make([]byte, n)
		got, err := io.ReadFull(in.r, b)
		in.at += int64(got)
		return b[:got], err
	}
	in.raw = grown(in.raw, n)
	got, err := io.ReadFull(in.r, in.raw[in.at:in.at+n])
	from := in.at
	in.at += int64(got)
	in.raw = in.raw[:in.at]
	return in.raw[from:in.at], err
}

// grown is b with room for n more bytes. What is large is the last part, and its
// room is taken once.
func grown(b []byte, n int64) []byte {
	need := len(b) + int(n)
	if need > cap(b) {
		size := need + BlockSize // the padding comes too
		if n < 1<<20 {
			size += need / 2
		}
		b = append(make([]byte, 0, size), b...)
	}
	return b[:need]
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// unreadable says where reading ended.
func (in *intake) unreadable(err error) error {
	switch {
	case err == nil:
		return nil
	case isEnd(err):
		return &CorruptError{Part: "header", Offset: in.at, Found: "the file ends here: it was not copied completely"}
	}
	return &CorruptError{Part: "header", Offset: in.at, Found: "cannot be read", Err: err}
}

func (in *intake) padding(p part) error {
	b, err := in.take(PaddedSize(p.size) - p.size)
	if err != nil {
		return in.unreadable(err)
	}
	if i := firstNonZero(b); i >= 0 {
		return &CorruptError{Part: "padding after " + entryRules[p.kind].part, Offset: p.at + p.size + int64(i), Found: "is not zero"}
	}
	return nil
}

// promised compares name and size of a part with what the parts before it say,
// before its content is read.
func (in *intake) promised(p part) error {
	switch p.kind {
	case entryTop:
		if got := digestOfPath(p.name); in.want != "" && got != in.want {
			return &OtherBundleError{Found: got, Want: in.want}
		}
	case entryMetaManifest:
		return p.is(in.top.meta)
	case entryMetadata:
		return p.is(in.meta.config)
	case entryChunks:
		if err := p.is(in.meta.chunks); err != nil {
			return err
		}
		if n := in.h.Metadata.chunkCount(); n*HashSize != p.size {
			return p.bad(fmt.Sprintf("the chunk table has %d bytes, the blobs have %d chunks", p.size, n))
		}
	}
	return nil
}

// is compares a part with the descriptor that promised it.
func (p part) is(want descriptor) error {
	at := p.at - BlockSize
	if p.name != BlobPath(want.Digest) {
		return &CorruptError{Part: "tar header of the " + entryRules[p.kind].part, Offset: at, Found: fmt.Sprintf("names %q, %q is implied", p.name, want.Digest)}
	}
	if p.size != want.Size {
		return &CorruptError{Part: "tar header of the " + entryRules[p.kind].part, Offset: at + 124, Found: fmt.Sprintf("says %d bytes, %d are implied", p.size, want.Size)}
	}
	return nil
}

// content reads and checks the content of a part.
func (in *intake) content(p *part) error {
	switch p.kind {
	case entryLayout, entrySignatures:
		return in.fixed(*p)
	case entryIndex:
		return in.hashed(p, nil)
	}
	return in.hashed(p, func(r io.Reader) error { return in.decode(*p, r) })
}

// fixed reads a part of which nothing is decoded yet.
func (in *intake) fixed(p part) error {
	b, err := in.take(p.size)
	switch {
	case err != nil:
		return in.unreadable(err)
	case p.kind == entrySignatures:
		in.h.slotAt, in.slot = p.at, b
	case string(b) != layoutContent:
		return p.bad("differs from its only content")
	}
	return nil
}

// hashed reads a part, compares it with the digest in its name, and decodes it. A
// digest that is wrong counts more than what is wrong with the content. What is
// kept is compared before it is decoded; what is not kept is hashed on the way.
func (in *intake) hashed(p *part, decode func(io.Reader) error) error {
	if decode == nil {
		decode = func(io.Reader) error { return nil }
	}
	var wrong error
	if in.keep {
		b, err := in.take(p.size)
		if err != nil {
			return in.unreadable(err)
		}
		p.sum = sha256.Sum256(b)
		if err := in.compare(*p); err != nil {
			return err
		}
		if p.kind == entryChunks {
			in.table = b
		}
		wrong = decode(bytes.NewReader(b))
	} else {
		sum := sha256.New()
		limited := &io.LimitedReader{R: in.r, N: p.size}
		from := io.TeeReader(limited, sum)
		wrong = decode(from)
		_, err := io.Copy(io.Discard, from)
		if in.at += p.size - limited.N; err == nil && limited.N > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return in.unreadable(err)
		}
		p.sum = [HashSize]byte(sum.Sum(nil))
		if err := in.compare(*p); err != nil {
			return err
		}
	}
	return wrong
}

// compare a part that is a blob with the digest in its name.
func (in *intake) compare(p part) error {
	if entryRules[p.kind].name != "" {
		return nil
	}
	if got, want := FormatDigest(p.sum), digestOfPath(p.name); got != want {
		return &CorruptError{Part: entryRules[p.kind].part, Digest: want, Offset: p.at, Length: p.size, Found: "the bytes have digest " + got}
	}
	return nil
}

func (in *intake) decode(p part, r io.Reader) error {
	switch p.kind {
	case entryTop:
		return in.decodeTop(p, r)
	case entryMetaManifest:
		return in.decodeMetaManifest(p, r)
	case entryMetadata:
		return in.decodeMetadata(p, r)
	}
	if found := in.h.Metadata.checkTable(r); found != "" {
		return p.bad(found)
	}
	return nil
}
