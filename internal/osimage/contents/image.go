package contents

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Layer of an image.
type Layer struct {
	// Digest of the compressed layer, DiffID of its tar.
	Digest, DiffID string
	MediaType      string
	// Size of the compressed layer, in bytes.
	Size int64
	// Unverified: its source may send other bytes than those of Digest. Such bytes are an
	// error that may pass, and no fact about the image.
	Unverified bool
	// Open reads the compressed layer.
	Open func() (io.ReadCloser, error)
}

// Image of one platform.
type Image struct {
	Platform string
	Labels   map[string]string
	// Layers, the lowest first.
	Layers []Layer
}

// Limits of a comparison.
type Limits struct {
	// Bytes of compressed layers that are read; Unpacked are those of their tars.
	Bytes, Unpacked int64
	// Entries of tars.
	Entries int
	// File is the largest file whose content is kept, Kept the limit of all of them.
	File, Kept int64
}

// DefaultLimits suffice for a small change of an image. A new base exceeds them, and then the
// node boots the image.
func DefaultLimits() Limits {
	return Limits{Bytes: 64 << 20, Unpacked: 256 << 20, Entries: 100_000, File: 64 << 10, Kept: 256 << 10}
}

// Kind of an entry.
type Kind string

// Kinds.
const (
	File      Kind = "file"
	Directory Kind = "directory"
	Symlink   Kind = "symbolic link"
	// Other is a device, a pipe, or a hard link into another layer.
	Other Kind = "special file"
)

// Entry of an image, without its path.
type Entry struct {
	Kind Kind
	// Mode are the permission bits with setuid, setgid and sticky.
	Mode     uint32
	UID, GID int
	// Link is the target of a symbolic link, the number of a device.
	Link string
	// Digest and Size of a file.
	Digest string
	Size   int64
	// Attributes is a hash of the extended attributes, empty for none.
	Attributes string
	// Data of a file below /etc that is small enough.
	Data []byte
	// bare: no layer names this directory, but one has a path below it.
	bare bool
}

// ordinary reports whether a directory looks like one that was created as a parent.
func (e Entry) ordinary() bool {
	return e.Kind == Directory && (e.bare || e.Mode == 0o755 && e.UID == 0 && e.GID == 0 && e.Attributes == "")
}

// differs returns the differing respects, without times.
func (e Entry) differs(o Entry) []string {
	if e.Kind != o.Kind {
		return []string{"kind"}
	}
	if e.bare || o.bare {
		if e.ordinary() && o.ordinary() {
			return nil
		}
		return []string{"mode"}
	}
	var out []string
	for _, d := range []struct {
		what string
		is   bool
	}{
		{"content", e.Digest != o.Digest || e.Kind == Other}, {"mode", e.Mode != o.Mode && e.Kind != Symlink}, {"owner", e.UID != o.UID || e.GID != o.GID},
		{"target", e.Link != o.Link}, {"attributes", e.Attributes != o.Attributes},
	} {
		if d.is {
			out = append(out, d.what)
		}
	}
	return out
}

// Presence of a path in an image.
type Presence string

// Presences.
const (
	There  Presence = "there"
	Absent Presence = "absent"
	// Shared: as in the layers that both images share, which are not read.
	Shared Presence = "shared"
)

// Side is a path in one of the images; Entry counts if it is there.
type Side struct {
	Presence Presence
	Entry    Entry
}

// Change is one path that differs.
type Change struct {
	// Path with the leading slash; also "label NAME" and "platform".
	Path string
	// What: added, removed, kind, content, mode, owner, target, attributes, emptied,
	// or unread if one image has it from layers that were not read.
	What    []string
	Was, Is Side
}

func (c Change) String() string { return c.Path + " (" + strings.Join(c.What, ", ") + ")" }

// Result of a comparison.
type Result struct {
	// Changes by path. If Stopped, the comparison ended at the last one, which is not covered.
	Changes []Change
	Stopped bool
	// Uncompared is why the images were not compared, empty if they were.
	Uncompared string
	// Shared counts the layers that were not read, Read the bytes of the others.
	Shared int
	Read   int64
}

// Same reports whether nothing differs.
func (r Result) Same() bool { return !r.Stopped && r.Uncompared == "" && len(r.Changes) == 0 }

// sharedLayers counts the layers that both have from the bottom.
func sharedLayers(a, b []Layer) int {
	n := 0
	for n < min(len(a), len(b)) && (a[n].Digest == b[n].Digest || a[n].DiffID != "" && a[n].DiffID == b[n].DiffID) {
		n++
	}
	return n
}

// hostLabels are prefixes of labels that hosts read when they boot an image.
var hostLabels = []string{"containers.bootc", "ostree.", "rpmostree.", "bootc."}

// changedLabels returns the differing labels that hosts read.
func changedLabels(was, is map[string]string) []Change {
	var out []Change
	keys := slices.Sorted(maps.Keys(was))
	for k := range is {
		if _, both := was[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		read := slices.ContainsFunc(hostLabels, func(p string) bool { return strings.HasPrefix(k, p) })
		if read && was[k] != is[k] {
			out = append(out, Change{Path: "label " + k, What: []string{"content"}})
		}
	}
	return out
}

// maxLayerSize is the largest plausible size of a layer, in bytes.
const maxLayerSize = 1 << 40

// refusal is why two lists of layers are not read, empty if they are.
func (l Limits) refusal(lists ...[]Layer) string {
	var size int64
	for _, list := range lists {
		for _, x := range list {
			if x.Size < 0 || x.Size > maxLayerSize {
				return fmt.Sprintf("layer %s says that it has %d bytes, which cannot be", x.Digest, x.Size)
			}
			size += x.Size
		}
	}
	if size <= l.Bytes {
		return ""
	}
	return fmt.Sprintf("the layers that differ have %d MB, and at most %d MB are read", (size+1<<20-1)>>20, l.Bytes>>20)
}
