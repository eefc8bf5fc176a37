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

// OwnFile is one file of the node that belongs to one updater alone, such as a drop-in with
// refit's name. A backup of what was there before the run makes an undo possible.
type OwnFile struct {
	FS   nodefiles.FS
	Path string
}

// ownFileBackup is the file before the run; Exists is false if there was none.
type ownFileBackup struct {
	Exists bool   `json:"exists"`
	Data   []byte `json:"data,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
}

func (f OwnFile) backupPath(t Task) string {
	return filepath.Join(t.Rollback, t.Step.ID+".before.json")
}

// HasContent reports whether the file has this content.
func (f OwnFile) HasContent(data []byte) (bool, error) {
	s, err := f.FS.Inspect(f.Path)
	return err == nil && s.Regular && s.Digest == model.DigestOf(data), err
}

// Write writes the file after a backup of what was there. The first backup of a run stays.
func (f OwnFile) Write(t Task, data []byte, mode uint32) error {
	if _, err := os.Stat(f.backupPath(t)); errors.Is(err, fs.ErrNotExist) {
		have, s, err := f.FS.Read(f.Path)
		if err != nil {
			return err
		}
		if err := fsutil.WriteJSON(f.backupPath(t), ownFileBackup{Exists: s.Exists, Data: have, Mode: s.Mode}); err != nil {
			return err
		}
	}
	return f.FS.Write(f.Path, data, mode, os.Getuid(), os.Getgid())
}

// readBackup returns the backup; ok is false if there is none, because nothing was
// written.
func (f OwnFile) readBackup(t Task) (k ownFileBackup, ok bool, err error) {
	if ok, err = fsutil.ReadJSON(f.backupPath(t), &k); err != nil {
		return k, false, fmt.Errorf("backup of %s: %w", f.Path, err)
	}
	return k, ok, nil
}

// Differs reports whether Restore would change anything.
func (f OwnFile) Differs(t Task) (bool, error) {
	k, ok, err := f.readBackup(t)
	if err != nil || !ok {
		return false, err
	}
	s, err := f.FS.Inspect(f.Path)
	if err != nil || !k.Exists {
		return s.Exists, err
	}
	return !s.Regular || s.Digest != model.DigestOf(k.Data), nil
}

// Restore restores what was there, unless it is there already.
func (f OwnFile) Restore(t Task) error {
	k, ok, err := f.readBackup(t)
	switch {
	case err != nil || !ok:
		return err
	case !k.Exists:
		return f.FS.Remove(f.Path)
	}
	return f.FS.Write(f.Path, k.Data, k.Mode, os.Getuid(), os.Getgid())
}
