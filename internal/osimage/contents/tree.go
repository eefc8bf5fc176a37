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

// tree is what some layers make of the ones below them, which are not read.
type tree struct {
	nodes map[string]Entry
	// gone are paths that were taken away, with all below; empty directories have
	// nothing of the lower layers in them.
	gone, emptied map[string]bool
	// replaced are directories that took the place of something else.
	replaced map[string]bool
	// parents of what is there or gone.
	parents map[string]bool
	// base says what the layers below are to a path that no layer here names.
	base Presence
	// Of the layer at hand.
	here, namedHere       map[string]Entry
	goneHere, emptiedHere map[string]bool
}

func newTree(base Presence) *tree {
	return &tree{nodes: map[string]Entry{}, gone: map[string]bool{}, emptied: map[string]bool{}, replaced: map[string]bool{}, parents: map[string]bool{}, base: base}
}

// begin the next layer; the highest comes first.
func (t *tree) begin() {
	t.here, t.namedHere, t.goneHere, t.emptiedHere = map[string]Entry{}, map[string]Entry{}, map[string]bool{}, map[string]bool{}
}

// add an entry of a layer; taken is false if a higher layer hides it.
func (t *tree) add(name string, e Entry) (taken bool) {
	if t.hidden(name) {
		t.implied(name)
		return false
	}
	have, ok := t.nodes[name]
	switch {
	case !ok:
		t.here[name] = e
		return true
	case have.Kind == Directory && e.Kind != Directory:
		// The directory above took the place of something else: nothing below that counts.
		t.emptiedHere[name], t.replaced[name] = true, true
	case have.bare && e.Kind == Directory && !t.replaced[name]:
		t.namedHere[name] = e // the last one of the layer counts
		return true
	}
	return false
}

// implied: what lay in a directory, and was taken away since, says that it is one.
func (t *tree) implied(name string) {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if _, have := t.nodes[at]; have || t.hidden(at) {
			continue
		}
		t.nodes[at] = Entry{Kind: Directory, bare: true}
		_ = t.above(at, true) // nothing but directories is above what is not hidden
	}
}

// takeAway a name of lower layers, or all in a directory; mark is a whiteout's name.
func (t *tree) takeAway(mark string) error {
	dir, base := path.Split(mark)
	what := strings.TrimPrefix(base, whiteout)
	switch {
	case base == opaque:
		t.emptiedHere[strings.TrimSuffix(dir, "/")] = true
	case what == "" || what == "." || what == ".." || strings.HasPrefix(what, whiteout):
		return odd("the mark " + mark + " takes nothing away that is known here")
	default:
		t.goneHere[dir+what] = true
	}
	return nil
}

// end of a layer: what it has hides what comes now.
func (t *tree) end() error {
	maps.Copy(t.nodes, t.here)
	maps.Copy(t.nodes, t.namedHere)
	for name := range t.here {
		if err := t.above(name, true); err != nil {
			return err
		}
	}
	for name := range t.goneHere {
		if t.hidden(name) {
			continue
		}
		t.gone[name] = true
		if err := t.above(name, false); err != nil {
			return err
		}
	}
	for name := range t.emptiedHere {
		if !t.hidden(name) {
			t.emptied[name] = true
		}
	}
	return nil
}

// above notes the directories over a name; they are there, if it is.
func (t *tree) above(name string, there bool) error {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		e, have := t.nodes[at]
		switch {
		case have && there && e.Kind != Directory:
			return odd(name + " lies below " + at + ", which is no directory")
		case there && !have:
			t.nodes[at] = Entry{Kind: Directory, bare: true}
		}
		t.parents[at] = true
	}
	return nil
}

// hidden reports whether a layer that was read took a name away, a directory above
// it, or made something else of one.
func (t *tree) hidden(name string) bool {
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
	if t.hidden(name) {
		return Side{Presence: Absent}
	}
	return Side{Presence: t.base}
}
