package bundledelta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// formatVersion is the version of the format with patches, sameVersion that of one which names
	// blobs of the base by their digest alone, tokenVersion that of one with tokens of layers. This refit
	// reads all.
	formatVersion = 1
	sameVersion   = 2
	tokenVersion  = 3
	// preambleSize is how many bytes come before the first section.
	preambleSize = 1024
	// maxPlanSize and maxPlanLine bound the plan in bytes, so that its decoder needs little memory.
	maxPlanSize = 64 << 20
	maxPlanLine = 16 << 10
	// maxGzipHeader bounds the header of a gzip stream in bytes.
	maxGzipHeader = 4 << 10
	// maxRefs is how many blobs of the base a patch may use.
	maxRefs = 4
	// window bounds what a zstd decoder keeps in bytes.
	window = 8 << 20
	// tokenWindow does so for the streams of tokens, of which a layer has more than one.
	tokenWindow = 1 << 20
	// leastWindow is what a zstd encoder has for small content.
	leastWindow = 64 << 10
	// maxSize bounds the size of a delta and of unpacked blobs; sums of two do not overflow.
	maxSize = 1 << 50
)

// DamagedError says that a delta is not what was written.
type DamagedError struct {
	// Part of the delta, or the blob that it was to give.
	Part string
	// Found says what is wrong.
	Found string
	Err   error
}

func (e *DamagedError) Error() string {
	s := fmt.Sprintf("delta is damaged: %s: %s", e.Part, e.Found)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *DamagedError) Unwrap() error { return e.Err }

func damaged(part, format string, a ...any) error {
	return &DamagedError{Part: part, Found: fmt.Sprintf(format, a...)}
}

// TooNewError says that the format is newer than this refit reads.
type TooNewError struct{ Format int }

func (e *TooNewError) Error() string {
	return fmt.Sprintf("delta has format %d, this refit reads format %d: update refit", e.Format, tokenVersion)
}

// BaseError says that a bundle is not the base of a delta.
type BaseError struct {
	// Found and Want are the digests of both, Target is that of the bundle that the delta gives.
	Found, Want, Target string
}

func (e *BaseError) Error() string {
	return fmt.Sprintf("the delta to bundle %s needs the base %s, found bundle %s: name the right base, or make a delta with --base for this one", e.Target, e.Want, e.Found)
}

// MissingError says that a base does not have blobs that a delta left out. A delta that was made
// from a bundle never causes it; a wrong inventory does.
type MissingError struct {
	// Base is the digest of the base, Target the header of the bundle that the delta gives.
	Base   string
	Target *bundle.Header
	// Blobs of the target, by their places.
	Blobs []int
}

func (e *MissingError) Error() string {
	var names []string
	for _, i := range e.Blobs {
		names = append(names, fmt.Sprintf("%s of %s", e.Target.Metadata.Blobs[i].Digest, e.Target.UserOf(i)))
	}
	return fmt.Sprintf("the base %s does not have %s that the delta to bundle %s leaves out: %s. The inventory was wrong: make the full bundle without --have, or a delta with --base",
		e.Base, text.Count(len(e.Blobs), "blob"), e.Target.Digest, text.FirstOf(names, 5, ", "))
}

// section is a range of the delta. The sections follow the preamble: header, data, plan.
type section struct {
	// Length in the delta, Size of what it unpacks to, Digest of that.
	Length int64  `json:"length"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
}

// preamble is the second line of a delta.
type preamble struct {
	// format is the number in the first line.
	format int
	// Base and Target are digests of bundles.
	Base   string `json:"base"`
	Target string `json:"target"`
	// Size of the target in bytes.
	Size int64 `json:"size"`
	// Header of the target, in zstd; Data as it is; Plan, in zstd.
	Header section `json:"header"`
	Data   section `json:"data"`
	Plan   section `json:"plan"`
}

// marshal makes the first bytes of a delta.
func (p preamble) marshal() []byte {
	line, err := json.Marshal(p)
	if err != nil {
		panic(err) // only strings and numbers come here
	}
	lines := fmt.Sprintf("%s%d\n%s\n", bundlereader.DeltaMagic, p.format, line)
	lines += bundle.DigestOf([]byte(lines)) + "\n"
	return append([]byte(lines), make([]byte, preambleSize-len(lines))...)
}

// fileSize is the size of the whole delta.
func (p preamble) fileSize() int64 {
	return preambleSize + p.Header.Length + p.Data.Length + p.Plan.Length
}

// parsePreamble accepts only the bytes that marshal makes.
func parsePreamble(b []byte) (preamble, error) {
	var p preamble
	first, rest, _ := strings.Cut(string(b), "\n")
	number, ok := strings.CutPrefix(first, bundlereader.DeltaMagic)
	if !ok {
		return p, fmt.Errorf("not a delta bundle: it does not begin with %q", bundlereader.DeltaMagic)
	}
	format, err := strconv.Atoi(number)
	if err != nil || format < 1 {
		return p, damaged("first line", "no format number")
	}
	if format > tokenVersion {
		return p, &TooNewError{format}
	}
	p.format = format
	line, _, _ := strings.Cut(rest, "\n")
	if err := json.Unmarshal([]byte(line), &p); err != nil {
		return p, &DamagedError{Part: "second line", Found: "cannot be decoded", Err: err}
	}
	if err := p.check(); err != nil {
		return p, err
	}
	if len(b) < preambleSize || !bytes.Equal(p.marshal(), b[:preambleSize]) {
		return p, damaged("preamble", "has another form or digest than its content implies")
	}
	return p, nil
}

func (p preamble) check() error {
	for _, d := range []string{p.Base, p.Target, p.Header.Digest, p.Data.Digest, p.Plan.Digest} {
		if !bundle.ValidDigest(d) {
			return damaged("second line", "%.80q is no digest", d)
		}
	}
	for _, n := range []int64{p.Size, p.Header.Length, p.Header.Size, p.Data.Length, p.Data.Size, p.Plan.Length, p.Plan.Size} {
		if n < 0 || n > maxSize {
			return damaged("second line", "%d bytes are not from 0 to %d", n, int64(maxSize))
		}
	}
	switch {
	case p.Header.Size > bundle.MaxHeaderSize:
		return damaged("second line", "the header of the bundle has %d bytes, more than the %d allowed", p.Header.Size, bundle.MaxHeaderSize)
	case p.Plan.Size > maxPlanSize:
		return damaged("second line", "the plan has %d bytes, more than the %d allowed", p.Plan.Size, maxPlanSize)
	case p.Data.Size != p.Data.Length:
		return damaged("second line", "the data has two sizes")
	}
	return nil
}

// plan says how each blob of the target is made, in their order. It is stored as lines of JSON:
// planHead, then one piece per line.
type plan struct {
	planHead
	pieces []piece
}

type planHead struct {
	// Tools names the refit that wrote the delta and what its gzip encoders are.
	Tools string `json:"tools"`
}

// piece is one blob: one of the members is set.
type piece struct {
	// Copy is a blob of the base with the same bytes.
	Copy *int `json:"copy,omitempty"`
	// Same is true if the base has the blob; the delta does not know at which place.
	Same bool `json:"same,omitempty"`
	// Data is the length of a zstd stream of the blob's bytes.
	Data *int64 `json:"data,omitempty"`
	// Patch makes the blob of blobs of the base.
	Patch *patch `json:"patch,omitempty"`
}

// patch makes a blob.
type patch struct {
	// Refs are unpacked and put in a row: the old bytes.
	Refs []ref `json:"refs"`
	// differences make the new bytes, before they are packed.
	differences
	// Gzip packs the new bytes.
	Gzip *recipe `json:"gzip,omitempty"`
	// Tokens do so too: one of them at most is set.
	Tokens *tokenPatch `json:"tokens,omitempty"`
}

// differences are three zstd streams in the data that make new bytes of old ones.
type differences struct {
	// Size of the new bytes.
	Size int64 `json:"size"`
	// Control, Diff and Extra are the lengths of the streams, in their order.
	Control int64 `json:"control"`
	Diff    int64 `json:"diff"`
	Extra   int64 `json:"extra"`
}

func (d differences) length() int64 { return d.Control + d.Diff + d.Extra }

func (d differences) check() error { return checkSizes(d.Size, d.Control, d.Diff, d.Extra) }

// tokenPatch makes the tokens of a layer of those of the Refs in a row.
type tokenPatch struct {
	differences
	// Frames is the length of one more zstd stream: what a layer has in addition to content and tokens.
	Frames int64 `json:"frames"`
}

// ref is an unpacked blob of the base.
type ref struct {
	Blob int `json:"blob"`
	// Packed is how the base has it: gzip, zstd, or empty. Size is without it.
	Packed string `json:"packed,omitempty"`
	Size   int64  `json:"size"`
	// Tokens is the size of its tokens in bytes, 0 if they are not needed.
	Tokens int64 `json:"tokens,omitempty"`
}

// recipe makes a gzip stream of its content.
type recipe struct {
	Encoder string `json:"encoder"`
	Level   int    `json:"level"`
	// Header is the beginning of the stream, as it is.
	Header []byte `json:"header"`
}

// length is what a piece takes of the data.
func (p piece) length() int64 {
	switch {
	case p.Data != nil:
		return *p.Data
	case p.Patch != nil:
		return p.Patch.length()
	}
	return 0
}

// length is what a patch takes of the data.
func (p *patch) length() int64 {
	n := p.differences.length()
	if t := p.Tokens; t != nil {
		n += t.length() + t.Frames
	}
	return n
}

// oldSize is the size of the old bytes of a patch.
func (p *patch) oldSize() int64 {
	var n int64
	for _, r := range p.Refs {
		n += r.Size
	}
	return n
}

// oldTokens is the size of the tokens of the old bytes.
func (p *patch) oldTokens() int64 {
	var n int64
	for _, r := range p.Refs {
		n += r.Tokens
	}
	return n
}

// spoolSize is how many bytes of the base a patch needs on disk.
func (p *patch) spoolSize() int64 { return p.oldSize() + p.oldTokens() }

var errPiece = errors.New("wants one of copy, same, data and patch")

// check checks a piece of a delta of a format.
func (p piece) check(format int) error {
	set := 0
	for _, is := range []bool{p.Copy != nil, p.Same, p.Data != nil, p.Patch != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return errPiece
	case p.Same && format < sameVersion:
		return fmt.Errorf("same is of format %d, the delta has format %d", sameVersion, format)
	case p.Copy != nil && *p.Copy < 0:
		return fmt.Errorf("blob %d", *p.Copy)
	case p.Data != nil:
		return checkSizes(*p.Data)
	case p.Patch != nil:
		return p.Patch.check(format)
	}
	return nil
}

func checkSizes(sizes ...int64) error {
	for _, n := range sizes {
		if n < 0 || n > maxSize {
			return fmt.Errorf("%d bytes are not from 0 to %d", n, int64(maxSize))
		}
	}
	return nil
}

func (r ref) check() error {
	if r.Blob < 0 || r.Packed != "" && r.Packed != packedGzip && r.Packed != packedZstd {
		return fmt.Errorf("blob %d packed by %q", r.Blob, r.Packed)
	}
	if r.Tokens > 0 && (r.Packed != packedGzip || r.Tokens/recordSize > r.Size) {
		return fmt.Errorf("blob %d packed by %q with %d bytes of tokens", r.Blob, r.Packed, r.Tokens)
	}
	return checkSizes(r.Size, r.Tokens)
}

func (p *patch) check(format int) error {
	if len(p.Refs) == 0 || len(p.Refs) > maxRefs {
		return fmt.Errorf("a patch of %d blobs, at most %d are allowed", len(p.Refs), maxRefs)
	}
	for _, r := range p.Refs {
		if err := r.check(); err != nil {
			return err
		}
	}
	if err := p.checkTokens(format); err != nil {
		return err
	}
	if g := p.Gzip; g != nil {
		if len(g.Header) > maxGzipHeader {
			return fmt.Errorf("a gzip header of %d bytes, at most %d are allowed", len(g.Header), maxGzipHeader)
		}
		if deflaters[g.Encoder] == nil {
			return fmt.Errorf("gzip encoder %.40q is not known: update refit", g.Encoder)
		}
	}
	return p.differences.check()
}

// checkTokens checks the tokens of a patch, if it has some.
func (p *patch) checkTokens(format int) error {
	t := p.Tokens
	switch {
	case t == nil && p.oldTokens() == 0:
		return nil
	case format < tokenVersion:
		return fmt.Errorf("tokens are of format %d, the delta has format %d", tokenVersion, format)
	case t == nil || p.Gzip != nil:
		return errors.New("wants the tokens of a layer, or what packs it")
	case t.Size%recordSize != 0 || t.Size/recordSize > p.Size:
		return fmt.Errorf("%d bytes of tokens for %d bytes of content", t.Size, p.Size)
	}
	if err := t.check(); err != nil {
		return err
	}
	return checkSizes(t.Frames)
}
