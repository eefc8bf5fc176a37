package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// Etcd is the etcd member of this node.
type Etcd interface {
	// Size of its database in bytes.
	Size(ctx context.Context) (int64, error)
	// Unsafe says why the member must not be restarted now, nothing if it may.
	Unsafe(ctx context.Context) ([]string, error)
	// Snapshot writes its whole state, and compares it with etcd's hash.
	Snapshot(ctx context.Context, w io.Writer) error
}

// Snapshots are in the run's rollback directory, one for each attempt; the first and the
// last are kept. A later update that needs the space removes them with the directory.
const (
	snapshotName = "etcd-snapshot-"
	snapshotEnd  = ".db"
)

func snapshotFile(t updaters.Task) string {
	return filepath.Join(t.Rollback, fmt.Sprintf("%s%d%s", snapshotName, t.Attempt, snapshotEnd))
}

// prepareEtcd makes sure of what must hold before an etcd member restarts: the other members
// keep the quorum, and a snapshot is on this node's disk. ok is true if that holds, or the
// node has no etcd.
func (u *Updater) prepareEtcd(ctx context.Context, t updaters.Task) (r updaters.Result, ok bool, err error) {
	e, err := u.host.Etcd(ctx)
	if err != nil || e == nil {
		return r, err == nil, err
	}
	problems, err := e.Unsafe(ctx)
	if err != nil {
		return r, false, err
	}
	if len(problems) > 0 {
		return updaters.InProgress(v1alpha1.ReasonControlPlaneUnhealthy, "kubeadm starts when etcd keeps its quorum without this node: %s", strings.Join(problems, "; ")), false, nil
	}
	if _, err := os.Stat(snapshotFile(t)); err == nil {
		return r, true, nil
	}
	size, err := e.Size(ctx)
	if err != nil {
		return r, false, err
	}
	room, err := fsutil.RoomAt(t.Rollback)
	if err != nil {
		return r, false, err
	}
	if need := model.EtcdSnapshotSpace(size); room.Free < need {
		return updaters.Fail(v1alpha1.ReasonInsufficientSpace, "a snapshot of etcd needs %d bytes in %s, %d are free; nothing was changed", need, filepath.Dir(t.Rollback), room.Free), false, nil
	}
	return r, true, writeSnapshot(ctx, t, e)
}

// writeSnapshot writes, syncs and renames: a file with the final name is complete.
func writeSnapshot(ctx context.Context, t updaters.Task, e Etcd) error {
	path := snapshotFile(t)
	if err := os.MkdirAll(t.Rollback, 0o700); err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	temporary := path + "~"
	defer os.Remove(temporary) // a no-op after the rename
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	err = e.Snapshot(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	failpoint.Here(failpoint.EtcdSnapshot)
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	if err := fsutil.SyncDir(t.Rollback); err != nil {
		return err
	}
	return removeMiddleSnapshots(t)
}

// removeMiddleSnapshots keeps the first snapshot, which is from before any change, and the
// last.
func removeMiddleSnapshots(t updaters.Task) error {
	entries, err := os.ReadDir(t.Rollback)
	if err != nil {
		return fmt.Errorf("snapshots of etcd: %w", err)
	}
	var attempts []int
	for _, e := range entries {
		n, ok := strings.CutPrefix(e.Name(), snapshotName)
		if n, isSnapshot := strings.CutSuffix(n, snapshotEnd); ok && isSnapshot {
			if a, err := strconv.Atoi(n); err == nil {
				attempts = append(attempts, a)
			}
		}
	}
	sort.Ints(attempts)
	if len(attempts) <= 2 {
		return nil
	}
	var errs []error
	for _, a := range attempts[1 : len(attempts)-1] {
		errs = append(errs, os.Remove(filepath.Join(t.Rollback, fmt.Sprintf("%s%d%s", snapshotName, a, snapshotEnd))))
	}
	return errors.Join(errs...)
}

// leftovers are the names under which kubeadm leaves copies of what it replaced
// and what it tried, in its directory for temporary files.
var leftovers = []string{"kubeadm-backup-manifests-", "kubeadm-backup-etcd-", "kubeadm-upgraded-manifests", "kubeadm-kubelet-config", "kubeadm-upgrade-dryrun", "kubeadm-upgrade-apply-dryrun", "kubeadm-upgrade-node-dryrun"}

func (u *Updater) listLeftovers() ([]string, error) {
	entries, err := os.ReadDir(u.host.TempDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kubeadm's directory for temporary files: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && slices.ContainsFunc(leftovers, func(p string) bool { return strings.HasPrefix(e.Name(), p) }) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

func foreignLeftoversFile(t updaters.Task) string {
	return filepath.Join(t.Dir, t.Step.ID+".tmp-before")
}

// recordForeignLeftovers records, before the first start of kubeadm in this run, which of
// these files are not this run's.
func (u *Updater) recordForeignLeftovers(t updaters.Task) error {
	if _, err := os.Stat(foreignLeftoversFile(t)); err == nil {
		return nil
	}
	names, err := u.listLeftovers()
	if err != nil {
		return err
	}
	return fsutil.WriteFile(foreignLeftoversFile(t), []byte(strings.Join(names, "\n")), 0o600)
}

// removeLeftovers removes what this run's kubeadm has left there, once it has succeeded: until
// then an administrator may need it for a repair. It never removes what others left.
func (u *Updater) removeLeftovers(t updaters.Task) error {
	b, err := os.ReadFile(foreignLeftoversFile(t))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is unknown which of them are this run's
	}
	if err != nil {
		return fmt.Errorf("what kubeadm leaves behind: %w", err)
	}
	names, err := u.listLeftovers()
	if err != nil {
		return err
	}
	others := strings.Split(string(b), "\n")
	for _, n := range names {
		if slices.Contains(others, n) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(u.host.TempDir(), n)); err != nil {
			return fmt.Errorf("what kubeadm leaves behind: %w", err)
		}
	}
	return nil
}
