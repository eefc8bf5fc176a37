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
	// Digest of the layer as it lies in a registry, DiffID of its tar.
	Digest, DiffID string
	MediaType      string
	// Size as it lies in a registry, in bytes.
	Size int64
	// Open reads it from there.
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
	// Bytes of layers that are read, as they lie in a registry; Unpacked of their tars.
	Bytes, Unpacked int64
	// Entries of tars.
	Entries int
	// File is how large a file may be whose content is kept, Kept all of them together.
	File, Kept int64
}

// Default limits: what a small change of an image needs. A base that is new as a whole
// is larger, and is booted.
func Default() Limits {
	return Limits{Bytes: 64 << 20, Unpacked: 256 << 20, Entries: 100_000, File: 64 << 10, Kept: 256 << 10}
}

// Kind of an entry.
type Kind string

// Kinds.
const (
	File      Kind = "file"
	Directory Kind = "directory"
	Symlink   Kind = "symbolic link"
	// Other is a device, a pipe, or a hard link to what lies in another layer.
	Other Kind = "special file"
)

// Entry is what is at a path.
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
	// Data of a file, if it was asked for and is small enough.
	Data []byte
	// bare: nothing names this directory, something lies below it.
	bare bool
}

// ordinary directories are made on the way to a file.
func (e Entry) ordinary() bool {
	return e.Kind == Directory && (e.bare || e.Mode == 0o755 && e.UID == 0 && e.GID == 0 && e.Attributes == "")
}

// differs says in what, times aside.
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
	// Shared: as the layers have it that both images share, which are not read.
	Shared Presence = "shared"
)

// Side is a path in one of the images; Entry counts if it is there.
type Side struct {
	Presence Presence
	Entry    Entry
}

// Change is one path that differs.
type Change struct {
	// Path with the leading slash; "label NAME" and "platform" for what is no path.
	Path string
	// What: added, removed, kind, content, mode, owner, target, attributes, emptied,
	// or unread if one image has it from layers that were not read.
	What    []string
	Was, Is Side
}

func (c Change) String() string { return c.Path + " (" + strings.Join(c.What, ", ") + ")" }

// Result of a comparison.
type Result struct {
	// Changes by path; all of them, unless it stopped at the last one, which is not
	// covered.
	Changes []Change
	Stopped bool
	// Uncompared says why it is not known what differs, empty if it is.
	Uncompared string
	// Shared layers were not read; Read bytes of the others were.
	Shared int
	Read   int64
}

// Same reports whether nothing differs.
func (r Result) Same() bool { return !r.Stopped && r.Uncompared == "" && len(r.Changes) == 0 }

// shared is how many layers both have from the bottom.
func shared(a, b []Layer) int {
	n := 0
	for n < min(len(a), len(b)) && (a[n].Digest == b[n].Digest || a[n].DiffID != "" && a[n].DiffID == b[n].DiffID) {
		n++
	}
	return n
}

// hostLabels are those that hosts read when they boot an image.
var hostLabels = []string{"containers.bootc", "ostree.", "rpmostree.", "bootc."}

// labels that hosts read and that differ.
func labels(was, is map[string]string) []Change {
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

// mostSize of a layer that is believed, in bytes.
const mostSize = 1 << 40

// tooMuch says why two lists of layers are not read, empty if they are.
func (l Limits) tooMuch(lists ...[]Layer) string {
	var size int64
	for _, list := range lists {
		for _, x := range list {
			if x.Size < 0 || x.Size > mostSize {
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
