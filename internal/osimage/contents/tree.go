package contents

import (
	"maps"
	"path"
	"strings"
)

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// tree is the effect of some layers on the layers below them, which are not read.
type tree struct {
	nodes map[string]Entry
	// gone are paths that a whiteout removed, with all below; emptied are directories whose
	// content of the lower layers an opaque whiteout hides.
	gone, emptied map[string]bool
	// replaced are directories in the place of another kind of entry.
	replaced map[string]bool
	// parents are the directories above nodes and gone paths.
	parents map[string]bool
	// base is the presence of a path that none of these layers names.
	base Presence
	// These hold the current layer.
	here, namedHere       map[string]Entry
	goneHere, emptiedHere map[string]bool
}

func newTree(base Presence) *tree {
	return &tree{nodes: map[string]Entry{}, gone: map[string]bool{}, emptied: map[string]bool{}, replaced: map[string]bool{}, parents: map[string]bool{}, base: base}
}

// beginLayer starts the next layer; the highest comes first.
func (t *tree) beginLayer() {
	t.here, t.namedHere, t.goneHere, t.emptiedHere = map[string]Entry{}, map[string]Entry{}, map[string]bool{}, map[string]bool{}
}

// addEntry adds an entry of the layer; taken is false if a higher layer hides it.
func (t *tree) addEntry(name string, e Entry) (taken bool) {
	if t.isHidden(name) {
		t.addImpliedParents(name)
		return false
	}
	have, ok := t.nodes[name]
	switch {
	case !ok:
		t.here[name] = e
		return true
	case have.Kind == Directory && e.Kind != Directory:
		// The directory of a higher layer replaced another kind of entry: it hides all below.
		t.emptiedHere[name], t.replaced[name] = true, true
	case have.bare && e.Kind == Directory && !t.replaced[name]:
		t.namedHere[name] = e // the last one of the layer counts
		return true
	}
	return false
}

// addImpliedParents adds the parents of a hidden entry: they are directories.
func (t *tree) addImpliedParents(name string) {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if _, have := t.nodes[at]; have || t.isHidden(at) {
			continue
		}
		t.nodes[at] = Entry{Kind: Directory, bare: true}
		_ = t.addParents(at, true) // only directories are above a visible path
	}
}

// applyWhiteout removes a path of lower layers, or the content of a directory.
func (t *tree) applyWhiteout(mark string) error {
	dir, base := path.Split(mark)
	what := strings.TrimPrefix(base, whiteout)
	switch {
	case base == opaque:
		t.emptiedHere[strings.TrimSuffix(dir, "/")] = true
	case what == "" || what == "." || what == ".." || strings.HasPrefix(what, whiteout):
		return incomparable("the whiteout " + mark + " names nothing that can be removed")
	default:
		t.goneHere[dir+what] = true
	}
	return nil
}

// endLayer adds the current layer to the tree, where it hides entries of lower layers.
func (t *tree) endLayer() error {
	maps.Copy(t.nodes, t.here)
	maps.Copy(t.nodes, t.namedHere)
	for name := range t.here {
		if err := t.addParents(name, true); err != nil {
			return err
		}
	}
	for name := range t.goneHere {
		if t.isHidden(name) {
			continue
		}
		t.gone[name] = true
		if err := t.addParents(name, false); err != nil {
			return err
		}
	}
	for name := range t.emptiedHere {
		if !t.isHidden(name) {
			t.emptied[name] = true
		}
	}
	return nil
}

// addParents records the directories above a name; they exist if it does.
func (t *tree) addParents(name string, there bool) error {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		e, have := t.nodes[at]
		switch {
		case have && there && e.Kind != Directory:
			return incomparable(name + " is below " + at + ", which is no directory")
		case there && !have:
			t.nodes[at] = Entry{Kind: Directory, bare: true}
		}
		t.parents[at] = true
	}
	return nil
}

// isHidden reports whether a higher layer removed or replaced a path or a directory above it.
func (t *tree) isHidden(name string) bool {
	if t.gone[name] {
		return true
	}
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		e, ok := t.nodes[at]
		if t.gone[at] || t.emptied[at] || ok && e.Kind != Directory {
			return true
		}
	}
	return false
}

// side of a path.
func (t *tree) side(name string) Side {
	if e, ok := t.nodes[name]; ok {
		return Side{There, e}
	}
	if t.isHidden(name) {
		return Side{Presence: Absent}
	}
	return Side{Presence: t.base}
}
