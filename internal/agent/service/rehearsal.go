package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/updaters/kubelet"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// rehearsal restores snapshots that updates left below the state directory into a scratch
// directory there. It opens no other file.
type rehearsal struct{ stateDir string }

// Limits of the rehearsal: rehearsalMargin stays free, after rehearsalTime it is given up.
const (
	rehearsalMargin = 256 << 20
	rehearsalTime   = 30 * time.Minute
	maxProblem      = 500
)

// snapshot is one that an update left.
type snapshot struct {
	path      string
	datastore string
	made      time.Time
	size      int64
}

func (s *rehearsal) scratch() string { return filepath.Join(s.stateDir, "restore-drill") }

// run rehearses with the newest snapshot. The scratch directory is gone afterwards, and that of
// an agent that died meanwhile is gone before.
func (s *rehearsal) run(ctx context.Context, _ string) (out v1alpha1.RestoreDrill) {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTime)
	defer cancel()
	problem := func(reason, object, fix, format string, a ...any) {
		out.Problem = &v1alpha1.NodeProblem{Reason: reason, Object: text.Truncate(object, 256), Message: text.Truncate(fmt.Sprintf(format, a...), maxProblem), Fix: fix}
	}
	found, err := s.newest()
	if err == nil {
		err = errors.Join(os.RemoveAll(s.scratch()), os.MkdirAll(s.scratch(), 0o700))
	}
	if err != nil {
		problem(v1alpha1.ReasonSnapshotUnusable, s.stateDir, "Make the directory readable and writable for the agent, then ask again.", "%v", err)
		return out
	}
	defer os.RemoveAll(s.scratch()) // what stays goes before the next one
	if found == nil {
		problem(v1alpha1.ReasonSnapshotMissing, s.stateDir, "An update of this server makes one, before it replaces the program. Rehearse after it.", "this node has no snapshot of a datastore")
		return out
	}
	made := metav1.NewTime(found.made.Truncate(time.Second))
	out.Datastore, out.Snapshot, out.SnapshotAt = found.datastore, found.path, &made
	room, err := fsutil.RoomAt(s.scratch())
	if need := found.size + rehearsalMargin; err == nil && room.Free < need {
		problem(v1alpha1.ReasonInsufficientSpace, s.scratch(), "Free the bytes that the message names, then ask again.", "the rehearsal needs %d bytes in %s, %d are free", need, s.stateDir, room.Free)
		return out
	}
	restored, err := found.restore(ctx, s.scratch())
	out.Bytes, out.Objects = restored.Bytes, restored.Objects
	if err != nil {
		problem(v1alpha1.ReasonSnapshotUnusable, found.path, "Do not rely on this snapshot: save one by the distribution's own command before the next update, and check the disk of this node.", "%v", err)
	}
	return out
}

func (s *snapshot) restore(ctx context.Context, scratch string) (etcd.Restored, error) {
	if s.datastore == model.DatastoreSQLite {
		return kubelet.RehearseSQLite(ctx, s.path, scratch)
	}
	return etcd.Rehearse(ctx, s.path, scratch)
}

// newest returns the newest snapshot of all updates, nil without one.
func (s *rehearsal) newest() (*snapshot, error) {
	root := filepath.Join(s.stateDir, "rollback")
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var newest *snapshot
	for _, e := range entries {
		for _, x := range snapshotsIn(filepath.Join(root, e.Name())) {
			if newest == nil || x.made.After(newest.made) {
				newest = &x
			}
		}
	}
	return newest, nil
}

// snapshotsIn returns those of one update: kubeadm's and k0s's files, those of the commands of
// k3s and RKE2, and copies of SQLite.
func snapshotsIn(dir string) (out []snapshot) {
	var files []string
	for _, pattern := range []string{"etcd-snapshot-*.db", "etcd-snapshot/*"} {
		some, _ := filepath.Glob(filepath.Join(dir, pattern)) // only a bad pattern is an error
		files = append(files, some...)
	}
	for _, f := range files {
		st, err := os.Lstat(f)
		if err == nil && st.Mode().IsRegular() && !strings.HasSuffix(f, "~") {
			out = append(out, snapshot{f, model.DatastoreEtcd, st.ModTime(), st.Size()})
		}
	}
	copied := filepath.Join(dir, "sqlite-snapshot")
	if kubelet.IsSQLiteSnapshot(copied) {
		x := snapshot{path: copied, datastore: model.DatastoreSQLite}
		entries, _ := os.ReadDir(copied) // it was read above
		for _, e := range entries {
			if st, err := e.Info(); err == nil {
				x.size += st.Size()
				x.made = later(x.made, st.ModTime())
			}
		}
		out = append(out, x)
	}
	return out
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
