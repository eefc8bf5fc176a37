package kubelet

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil"
)

// unpackedParts are the directories of parts that were there before a new program started, and
// the boot in which refit has last looked.
type unpackedParts struct {
	Boot  string   `json:"boot"`
	Names []string `json:"names"`
}

// flushing is a host whose program has its unpacked parts on disk when its restart is carried out:
// after a power cut a torn part would stop every later start.
type flushing struct{ SupervisorHost }

func (h flushing) RestartKubelet(ctx context.Context) error {
	return errors.Join(h.SupervisorHost.RestartKubelet(ctx), flushParts(h))
}

// repairParts has a program unpack its parts again after a power cut. k3s unpacks at its first
// start, does not flush, and takes a directory that is there for whole: torn files would stop
// every later start. Directories from before the update stay.
func (u *Supervisor) repairParts(ctx context.Context, t updaters.Task) error {
	dir, again := u.host.Unpacked()
	if dir == "" || !again {
		return nil
	}
	boot, err := u.host.BootID()
	if err != nil {
		return err
	}
	record, was := filepath.Join(t.Rollback, "unpacked.json"), unpackedParts{}
	found, err := fsutil.ReadJSON(record, &was)
	if err != nil || found && was.Boot == boot {
		return err
	}
	names, err := partsIn(dir)
	if err != nil {
		return err
	}
	if !found {
		was.Names = names
	} else if err := u.removeParts(ctx, t, dir, newParts(names, was.Names)); err != nil {
		return err
	}
	was.Boot = boot
	return errors.Join(os.MkdirAll(t.Rollback, 0o700), fsutil.WriteJSON(record, was))
}

// removeParts removes directories. The unit stops first if the new program is in place: it may
// run from them.
func (u *Supervisor) removeParts(ctx context.Context, t updaters.Task, dir string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return err
	}
	placed, err := u.placed(t, path)
	if err != nil {
		return err
	}
	if placed {
		if err := u.host.Stop(ctx); err != nil {
			return err
		}
	}
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(dir, n)); err != nil {
			return err
		}
	}
	return nil
}

func newParts(now, before []string) []string {
	return slices.DeleteFunc(now, func(n string) bool { return slices.Contains(before, n) })
}

// digestLength is that of SHA-256 in hex: k3s names its directories by the digest of the parts.
const digestLength = 64

// partsIn returns the directories of parts, and those that are being unpacked.
func partsIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		digest, _, _ := strings.Cut(e.Name(), "-")
		if _, bad := hex.DecodeString(digest); bad == nil && len(digest) == digestLength && e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// flushParts writes out what the program has unpacked.
func flushParts(h SupervisorHost) error {
	dir, _ := h.Unpacked()
	if dir == "" {
		return nil
	}
	if err := fsutil.SyncFS(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
