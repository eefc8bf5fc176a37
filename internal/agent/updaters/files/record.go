package files

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// record is the file with what refit gave this node, whatever it is told now.
type record string

// given is its content.
type given struct {
	Files map[string]givenFile `json:"files,omitempty"`
	// Units have the state that they were brought into last.
	Units map[string]string `json:"units,omitempty"`
}

type givenFile struct {
	// Value that the file was seen at when a step had ended, empty if no
	// configuration wants it any more, or the step was taken back.
	Value string `json:"value,omitempty"`
	// Wrote are the digests of what was written there, and ValueAbsent for what was
	// removed, the newest last: by them a copy is known for refit's own.
	Wrote []string `json:"wrote,omitempty"`
}

// mostWrote is how many digests of a file are remembered.
const mostWrote = 8

func (r record) read() (given, error) {
	g := given{Files: map[string]givenFile{}, Units: map[string]string{}}
	if _, err := fsutil.ReadJSON(string(r), &g); err != nil {
		return g, fmt.Errorf("record of this node's files: %w", err)
	}
	return g, nil
}

// change writes the record, if that changes anything.
func (r record) change(do func(*given)) error {
	g, err := r.read()
	if err != nil {
		return err
	}
	have, err := r.read()
	if err != nil {
		return err
	}
	if do(&g); reflect.DeepEqual(g, have) {
		return nil
	}
	return fsutil.WriteJSON(string(r), g)
}

// begin says what is about to be done to a path: what is written there is refit's, and
// until the step has ended nobody knows what the path is to be, so that a step that is
// never taken up again leaves no drift.
func (r record) begin(f model.ConfigFile) error {
	return r.change(func(g *given) {
		x := g.Files[f.Path]
		if x.Value != f.Value() {
			x.Value = ""
		}
		if d := written(f); d != "" && !slices.Contains(x.Wrote, d) {
			x.Wrote = append(x.Wrote, d)
			x.Wrote = x.Wrote[max(0, len(x.Wrote)-mostWrote):]
		}
		g.Files[f.Path] = x
	})
}

// beginUnit says the same of a unit.
func (r record) beginUnit(w model.ConfigUnit) error {
	return r.change(func(g *given) {
		if g.Units[w.Name] != w.State {
			delete(g.Units, w.Name)
		}
	})
}

// written is how it is remembered what a file is made; empty for what is given back.
func written(f model.ConfigFile) string {
	switch {
	case f.AsImage:
		return ""
	case f.Absent:
		return model.ValueAbsent
	}
	return f.Content()
}

// settle says that everything is as a configuration wants it, but for what comes with
// an image later.
func (r record) settle(c *model.NodeConfig, later awaited) error {
	return r.change(func(g *given) {
		for path, x := range g.Files {
			x.Value = ""
			g.Files[path] = x
		}
		g.Units = map[string]string{}
		for _, f := range c.Files {
			if !f.InImage && !f.Stale && !f.AsImage {
				x := g.Files[f.Path]
				x.Value = f.Value()
				g.Files[f.Path] = x
			}
		}
		for _, w := range c.Units {
			if !later.unit(w.Name) {
				g.Units[w.Name] = w.State
			}
		}
	})
}

// back says again what was said before a step that was taken back.
func (r record) back(b before) error {
	return r.change(func(g *given) {
		for _, k := range b.Files {
			if x, known := g.Files[k.Path]; known {
				x.Value = k.Given
				g.Files[k.Path] = x
			}
		}
		for _, k := range b.Units {
			if delete(g.Units, k.Name); k.Given != "" {
				g.Units[k.Name] = k.Given
			}
		}
	})
}

// ours reports whether a copy in /etc that hides the image's is refit's: it wrote
// these bytes there, or they are those of the image.
func (u *Updater) ours(g given, path string, s nodefiles.State) bool {
	if slices.Contains(g.Files[path].Wrote, s.Digest) {
		return s.Regular
	}
	twin, err := u.fs.Look(model.Twin(path))
	return err == nil && s.Regular && twin.Regular && twin.Digest == s.Digest
}

// awaited are the paths of what only an image brings, and is not there.
type awaited map[string]bool

func (u *Updater) awaited(c *model.NodeConfig) awaited {
	out := awaited{}
	for _, f := range c.Files {
		if !f.InImage {
			continue
		}
		if s, err := u.fs.Look(f.Path); err != nil || !as(f, s) {
			out[f.Path] = true
		}
	}
	return out
}

// unit reports whether a part of a unit is among them.
func (a awaited) unit(name string) bool {
	for path := range a {
		if model.UnitOf(path) == name {
			return true
		}
	}
	return false
}
