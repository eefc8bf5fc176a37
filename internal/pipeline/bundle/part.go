package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
)

// PartHeaderSize is the size of the header of a part; the part's bytes of the bundle follow it.
const PartHeaderSize = BlockSize

// MaxParts is how many parts a bundle may have: fewer than files are checked on a medium.
const MaxParts = 256

const (
	partMagic = "refit-bundle-part, format "
	partFirst = partMagic + "1\n"
)

// ErrNotPart says that bytes do not begin as a part of a bundle does.
var ErrNotPart = errors.New("not a part of a refit bundle")

// Part says which bytes of which bundle a file has. Only the bundle's digest is trusted: the
// header of a part leads to the bytes, which are verified as those of any bundle.
type Part struct {
	// Bundle is the digest of the bundle, Size its bytes.
	Bundle string `json:"bundle"`
	Size   int64  `json:"size"`
	// Number counts from 1 to Count.
	Number int `json:"part"`
	Count  int `json:"parts"`
	// Offset and Length are the range of the bundle that the part has.
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	// Digest of that range.
	Digest string `json:"digest"`
}

// SplitParts returns the parts of a bundle with at most step bytes of the bundle each, without
// their digests. The error says that there would be too many.
func SplitParts(digest string, size, step int64) ([]Part, error) {
	count := (size + step - 1) / step
	if count > MaxParts {
		return nil, fmt.Errorf("%d bytes in parts of %d are %d parts, more than the %d allowed: use larger parts", size, step+PartHeaderSize, count, MaxParts)
	}
	var out []Part
	for at := int64(0); at < size; at += step {
		out = append(out, Part{Bundle: digest, Size: size, Number: len(out) + 1, Count: int(count), Offset: at, Length: min(step, size-at)})
	}
	return out, nil
}

// step is the length of all parts but the last one.
func (p Part) step() int64 {
	if p.Number > 1 {
		return p.Offset / int64(p.Number-1)
	}
	return p.Length
}

// Containing returns the number of the part with a byte of the bundle, of the same split.
func (p Part) Containing(offset int64) int { return int(offset/p.step()) + 1 }

// Range returns the range of the bundle that a part of the same split has.
func (p Part) Range(number int) (offset, length int64) {
	offset = int64(number-1) * p.step()
	return offset, min(p.step(), p.Size-offset)
}

// Header is the header of the part: two lines for people and programs, the digest of both, zeros.
func (p Part) Header() []byte {
	b := append([]byte(partFirst), canonical(p)...)
	b = append(b, '\n')
	b = append(append(b, DigestOf(b)...), '\n')
	return append(b, make([]byte, max(0, PartHeaderSize-len(b)))...)
}

// ParsePart reads the header of a part. Errors: ErrNotPart for other files, others for a part of a
// newer format or one that is damaged.
func ParsePart(b []byte) (Part, error) {
	var p Part
	if !bytes.HasPrefix(b, []byte(partMagic)) {
		return p, ErrNotPart
	}
	if len(b) < PartHeaderSize {
		return p, errors.New("the header of the part is cut off: copy the part again")
	}
	b = b[:PartHeaderSize]
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	if string(line)+"\n" != partFirst {
		return p, errors.New("the part has a newer format or is damaged: copy it again, or update refit")
	}
	damaged := errors.New("the header of the part is damaged: copy the part again")
	line, _, _ = bytes.Cut(rest, []byte("\n"))
	if json.Unmarshal(line, &p) != nil || !p.isValid() || !bytes.Equal(p.Header(), b) {
		return Part{}, damaged
	}
	return p, nil
}

// isValid reports whether all numbers fit together.
func (p Part) isValid() bool {
	if !ValidDigest(p.Bundle) || !ValidDigest(p.Digest) || !p.isCounted() || p.Size <= 0 || p.Size > maxTarSize {
		return false
	}
	step := p.step()
	if step < 1 || p.Offset != int64(p.Number-1)*step || p.Offset >= p.Size || p.Length != min(step, p.Size-p.Offset) {
		return false
	}
	return int64(p.Count) == (p.Size-1)/step+1
}

func (p Part) isCounted() bool { return 1 <= p.Number && p.Number <= p.Count && p.Count <= MaxParts }

// String names the part.
func (p Part) String() string { return fmt.Sprintf("part %d of %d", p.Number, p.Count) }

// UnknownPartSize is the size of a device with a part: it may be larger than the part.
const UnknownPartSize = -1

// PartFile is a part and the file that has it.
type PartFile struct {
	Part
	// Name of the file, for messages.
	Name string
	// FileSize is the size of the file or UnknownPartSize.
	FileSize int64
}

func (f PartFile) String() string { return fmt.Sprintf("%s (%s)", f.Part, f.Name) }

// PartsError says what is wrong with the parts of a bundle, and what to do.
type PartsError struct {
	// Bundle is its digest, empty if it is not known.
	Bundle   string
	Problems []string
}

func (e *PartsError) Error() string {
	of := "a bundle"
	if e.Bundle != "" {
		of = "bundle " + e.Bundle
	}
	return "parts of " + of + ": " + strings.Join(e.Problems, "; ")
}

// GroupParts returns the parts of each split, in the order of their numbers. Each group has at
// least one part. The groups are in the order of files.
func GroupParts(files []PartFile) [][]PartFile {
	type split struct {
		bundle string
		size   int64
		count  int
		step   int64
	}
	var order []split
	groups := map[split][]PartFile{}
	for _, f := range files {
		s := split{f.Bundle, f.Size, f.Count, f.step()}
		if groups[s] == nil {
			order = append(order, s)
		}
		groups[s] = append(groups[s], f)
	}
	var out [][]PartFile
	for _, s := range order {
		sort.SliceStable(groups[s], func(i, j int) bool { return groups[s][i].Number < groups[s][j].Number })
		out = append(out, groups[s])
	}
	return out
}

// CheckParts reports what is missing, doubled or torn in a group of GroupParts: nil or a
// *PartsError. others are groups found with it: a part of one of them may be there by mistake.
func CheckParts(group []PartFile, others [][]PartFile) error {
	e := &PartsError{Bundle: group[0].Bundle}
	next := 1
	var missing []int
	for i, f := range group {
		for ; next < f.Number; next++ {
			missing = append(missing, next)
		}
		if i > 0 && group[i-1].Number == f.Number {
			e.Problems = append(e.Problems, fmt.Sprintf("%s is there twice, as %s and %s: remove one of them", f.Part, group[i-1].Name, f.Name))
		}
		if want := PartHeaderSize + f.Length; f.FileSize != UnknownPartSize && f.FileSize != want {
			e.Problems = append(e.Problems, fmt.Sprintf("%s has %d bytes, %d expected: copy it again", f, f.FileSize, want))
		}
		next = f.Number + 1
	}
	for ; next <= group[0].Count; next++ {
		missing = append(missing, next)
	}
	if len(missing) > 0 {
		e.Problems = append(e.Problems, missingParts(missing, group[0].Count)+foreignParts(others))
	}
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// IntactParts returns the parts of a group of GroupParts, each once, without files that end early
// or late. The error is a *PartsError that names those.
func IntactParts(group []PartFile) (intact []PartFile, torn error) {
	e := &PartsError{Bundle: group[0].Bundle}
	for _, f := range group {
		switch want := PartHeaderSize + f.Length; {
		case f.FileSize != UnknownPartSize && f.FileSize != want:
			e.Problems = append(e.Problems, fmt.Sprintf("%s has %d bytes, %d expected: copy it again", f, f.FileSize, want))
		case len(intact) == 0 || intact[len(intact)-1].Number != f.Number:
			intact = append(intact, f)
		}
	}
	if len(e.Problems) == 0 {
		return intact, nil
	}
	return intact, e
}

// PartNumbers names parts by their numbers, "part 3 of 5" or "parts 1, 3 of 5", at most eight.
func PartNumbers(numbers []int, count int) string {
	var names []string
	for _, n := range numbers[:min(len(numbers), maxNamedParts)] {
		names = append(names, fmt.Sprint(n))
	}
	if more := len(numbers) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if len(numbers) == 1 {
		return fmt.Sprintf("part %s of %d", names[0], count)
	}
	return fmt.Sprintf("parts %s of %d", strings.Join(names, ", "), count)
}

// maxNamedParts is how many missing parts, and parts of other bundles, are named.
const maxNamedParts = 8

func missingParts(numbers []int, count int) string {
	if len(numbers) == 1 {
		return PartNumbers(numbers, count) + " is missing: add it, or the medium that has it"
	}
	return PartNumbers(numbers, count) + " are missing: add them, or the media that have them"
}

func foreignParts(others [][]PartFile) string {
	var names []string
	for _, g := range others {
		for _, f := range g {
			if len(names) < maxNamedParts {
				names = append(names, fmt.Sprintf("%s is of another split, of bundle %s", f, f.Bundle))
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, "; ") + ")"
}

// PartSum compares the digest of a part's bytes with that in its header.
func (f PartFile) PartSum(sum [sha256.Size]byte) error {
	if got := FormatDigest(sum); got != f.Digest {
		return &PartsError{Bundle: f.Bundle, Problems: []string{fmt.Sprintf("%s is damaged, its bytes have digest %s, %s expected: copy it again", f, got, f.Digest)}}
	}
	return nil
}
