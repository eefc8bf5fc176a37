package updaters

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// OwnFile is one file of the node that belongs to one updater alone, such as a
// drop-in with refit's name. What was there before a run is kept, so that the run
// can be taken back.
type OwnFile struct {
	FS   nodefiles.FS
	Path string
}

// keptOwn is what was there before; no Data and no Exists if nothing was.
type keptOwn struct {
	Exists bool   `json:"exists"`
	Data   []byte `json:"data,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
}

func (f OwnFile) kept(t Task) string { return filepath.Join(t.Rollback, t.Step.ID+".before.json") }

// Is reports whether the file has this content.
func (f OwnFile) Is(data []byte) (bool, error) {
	s, err := f.FS.Look(f.Path)
	return err == nil && s.Regular && s.Digest == model.DigestOf(data), err
}

// Put writes the file, after what was there is kept; the oldest that was kept in
// this run stays.
func (f OwnFile) Put(t Task, data []byte, mode uint32) error {
	if _, err := os.Stat(f.kept(t)); errors.Is(err, fs.ErrNotExist) {
		have, s, err := f.FS.Read(f.Path)
		if err != nil {
			return err
		}
		if err := fsutil.WriteJSON(f.kept(t), keptOwn{Exists: s.Exists, Data: have, Mode: s.Mode}); err != nil {
			return err
		}
	}
	return f.FS.Write(f.Path, data, mode, os.Getuid(), os.Getgid())
}

// before reads what was kept; ok is false if nothing was, because nothing was
// written.
func (f OwnFile) before(t Task) (k keptOwn, ok bool, err error) {
	if ok, err = fsutil.ReadJSON(f.kept(t), &k); err != nil {
		return k, false, fmt.Errorf("what was at %s: %w", f.Path, err)
	}
	return k, ok, nil
}

// Differs reports whether PutBack would change anything.
func (f OwnFile) Differs(t Task) (bool, error) {
	k, ok, err := f.before(t)
	if err != nil || !ok {
		return false, err
	}
	s, err := f.FS.Look(f.Path)
	if err != nil || !k.Exists {
		return s.Exists, err
	}
	return !s.Regular || s.Digest != model.DigestOf(k.Data), nil
}

// PutBack restores what was there, if it is not there already.
func (f OwnFile) PutBack(t Task) error {
	k, ok, err := f.before(t)
	switch {
	case err != nil || !ok:
		return err
	case !k.Exists:
		return f.FS.Remove(f.Path)
	}
	return f.FS.Write(f.Path, k.Data, k.Mode, os.Getuid(), os.Getgid())
}
