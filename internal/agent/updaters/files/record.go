package files

import (
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// record is the file that lists what refit wrote on this node, also for earlier desired states.
type record string

// recordData is its content.
type recordData struct {
	Files map[string]fileRecord `json:"files,omitempty"`
	// Units have the state that refit set last.
	Units map[string]string `json:"units,omitempty"`
}

type fileRecord struct {
	// Value of the file when a step had ended; empty if no configuration wants it any
	// more, or the step was undone.
	Value string `json:"value,omitempty"`
	// Wrote are the digests of what refit wrote there, and ValueAbsent for what it
	// removed, the newest last: they identify a copy as refit's own.
	Wrote []string `json:"wrote,omitempty"`
}

// maxWrote is how many digests of a file are recorded.
const maxWrote = 8

func (r record) load() (recordData, error) {
	g := recordData{Files: map[string]fileRecord{}, Units: map[string]string{}}
	if _, err := fsutil.ReadJSON(string(r), &g); err != nil {
		return g, fmt.Errorf("record of this node's files: %w", err)
	}
	return g, nil
}

// update writes the record if do changes it.
func (r record) update(do func(*recordData)) error {
	return updaters.UpdateRecord(string(r), r.load, do)
}

// startFile records what a step is about to write to a path, so that the content is known to
// be refit's. The path has no expected value until the step has ended, so that an abandoned
// step leaves no drift.
func (r record) startFile(f model.ConfigFile) error {
	return r.update(func(g *recordData) {
		x := g.Files[f.Path]
		if x.Value != f.Value() {
			x.Value = ""
		}
		if d := writtenDigest(f); d != "" && !slices.Contains(x.Wrote, d) {
			x.Wrote = append(x.Wrote, d)
			x.Wrote = x.Wrote[max(0, len(x.Wrote)-maxWrote):]
		}
		g.Files[f.Path] = x
	})
}

// startUnit does the same for a unit.
func (r record) startUnit(w model.ConfigUnit) error {
	return r.update(func(g *recordData) {
		if g.Units[w.Name] != w.State {
			delete(g.Units, w.Name)
		}
	})
}

// writtenDigest is what Wrote records for a file; empty for a file restored from the image.
func writtenDigest(f model.ConfigFile) string {
	switch {
	case f.AsImage:
		return ""
	case f.Absent:
		return model.ValueAbsent
	}
	return f.Content()
}

// finish records that everything is as a configuration wants it, except what comes with an
// image later.
func (r record) finish(c *model.NodeConfig, later pendingImageFiles) error {
	return r.update(func(g *recordData) {
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
			if !later.hasUnit(w.Name) {
				g.Units[w.Name] = w.State
			}
		}
	})
}

// undo restores the values that were recorded before an undone step.
func (r record) undo(b backup) error {
	return r.update(func(g *recordData) {
		for _, k := range b.Files {
			if x, known := g.Files[k.Path]; known {
				x.Value = k.Recorded
				g.Files[k.Path] = x
			}
		}
		for _, k := range b.Units {
			if delete(g.Units, k.Name); k.Recorded != "" {
				g.Units[k.Name] = k.Recorded
			}
		}
	})
}

// isOwn reports whether a copy in /etc that hides the image's is refit's: refit wrote
// these bytes there, or they are those of the image.
func (u *Updater) isOwn(g recordData, path string, s nodefiles.State) bool {
	if slices.Contains(g.Files[path].Wrote, s.Digest) {
		return s.Regular
	}
	twin, err := u.fs.Inspect(model.ImageUnitPath(path))
	return err == nil && s.Regular && twin.Regular && twin.Digest == s.Digest
}

// pendingImageFiles are the paths of missing files that only an image brings.
type pendingImageFiles map[string]bool

func (u *Updater) pendingImageFiles(c *model.NodeConfig) pendingImageFiles {
	out := pendingImageFiles{}
	for _, f := range c.Files {
		if !f.InImage {
			continue
		}
		if s, err := u.fs.Inspect(f.Path); err != nil || !isAsWanted(f, s) {
			out[f.Path] = true
		}
	}
	return out
}

// hasUnit reports whether a part of a unit is among them.
func (a pendingImageFiles) hasUnit(name string) bool {
	for path := range a {
		if model.UnitOf(path) == name {
			return true
		}
	}
	return false
}
