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

// Etcd is the member of this node.
type Etcd interface {
	// Size of its database in bytes.
	Size(ctx context.Context) (int64, error)
	// Unsafe says why it must not be restarted now, nothing if it may.
	Unsafe(ctx context.Context) ([]string, error)
	// Snapshot writes its whole state, and compares it with etcd's hash.
	Snapshot(ctx context.Context, w io.Writer) error
}

// snapshots are in the run's rollback directory, one per attempt: the first of
// them and the last are kept. With the directory they go when a later update
// needs its room.
const (
	snapshotName = "etcd-snapshot-"
	snapshotEnd  = ".db"
)

func snapshotFile(t updaters.Task) string {
	return filepath.Join(t.Rollback, fmt.Sprintf("%s%d%s", snapshotName, t.Attempt, snapshotEnd))
}

// ready asks what must be so before a member of etcd is restarted: the others
// keep the quorum, and a snapshot is on this node's disk. ok is true when it is
// so, or the node has no etcd.
func (u *Updater) ready(ctx context.Context, t updaters.Task) (r updaters.Result, ok bool, err error) {
	e, err := u.host.Etcd(ctx)
	if err != nil || e == nil {
		return r, err == nil, err
	}
	problems, err := e.Unsafe(ctx)
	if err != nil {
		return r, false, err
	}
	if len(problems) > 0 {
		return updaters.Going(v1alpha1.ReasonControlPlaneUnhealthy, "kubeadm starts when etcd keeps its quorum without this node: %s", strings.Join(problems, "; ")), false, nil
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
	if need := model.SnapshotRoom(size); room.Free < need {
		return updaters.Fail(v1alpha1.ReasonInsufficientSpace, "a snapshot of etcd needs %d bytes in %s, %d are free; nothing was changed", need, filepath.Dir(t.Rollback), room.Free), false, nil
	}
	return r, true, snapshot(ctx, t, e)
}

// snapshot writes, syncs and names: what has the name is whole.
func snapshot(ctx context.Context, t updaters.Task, e Etcd) error {
	path := snapshotFile(t)
	if err := os.MkdirAll(t.Rollback, 0o700); err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	beside := path + "~"
	defer os.Remove(beside) // gone if it was named
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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
	if err := os.Rename(beside, path); err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	if err := fsutil.SyncDir(t.Rollback); err != nil {
		return err
	}
	return thin(t)
}

// thin removes the snapshots between the first, which is from before any change,
// and the last.
func thin(t updaters.Task) error {
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

func (u *Updater) leftovers() ([]string, error) {
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

func othersFile(t updaters.Task) string { return filepath.Join(t.Dir, t.Step.ID+".tmp-before") }

// noteOthers writes down, before kubeadm is started first in this run, what of
// that is not this run's.
func (u *Updater) noteOthers(t updaters.Task) error {
	if _, err := os.Stat(othersFile(t)); err == nil {
		return nil
	}
	names, err := u.leftovers()
	if err != nil {
		return err
	}
	return fsutil.WriteFile(othersFile(t), []byte(strings.Join(names, "\n")), 0o600)
}

// clean removes what this run's kubeadm has left there, once it has succeeded:
// until then it is what a person would mend a node with. Never what others left.
func (u *Updater) clean(t updaters.Task) error {
	b, err := os.ReadFile(othersFile(t))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was not noted whose they are
	}
	if err != nil {
		return fmt.Errorf("what kubeadm leaves behind: %w", err)
	}
	names, err := u.leftovers()
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
