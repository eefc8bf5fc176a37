package kubelet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// SupervisorHost is a node on which one program starts container runtime, kubelet and the
// rest: Host is about that program and its unit, not about the kubelet alone.
type SupervisorHost interface {
	Host
	// SnapshotCommand saves a snapshot of etcd into a directory; nil on nodes without etcd,
	// and where the distribution has no such command.
	SnapshotCommand(dir string) []string
	// Etcd is the member of this node where refit saves the snapshot itself, else nil.
	Etcd() Etcd
	// SQLite is the path of a server's database, "" on nodes without one.
	SQLite() string
	// Stop stops the unit and the process that has the database open. Containers continue.
	Stop(ctx context.Context) error
	// Unpacked is the directory in which the program unpacks its parts, one directory for each
	// build; "" if it has none. again is true if it can unpack them once more by itself.
	Unpacked() (dir string, again bool)
	// BootID differs after each start of the machine.
	BootID() (string, error)
	// RunDetached starts a command in a unit of its own, with its output in log and its end
	// in result; DetachedRuns reports whether the unit runs.
	RunDetached(ctx context.Context, unit, description, log, result string, argv []string) error
	DetachedRuns(ctx context.Context, unit string) (bool, error)
}

// Etcd is the etcd member of a node.
type Etcd interface {
	Size(ctx context.Context) (int64, error)
	// Snapshot writes the whole state, and compares it with etcd's own checksum.
	Snapshot(ctx context.Context, w io.Writer) error
}

// Supervisor is the step "supervisor": it replaces the one program of a k3s, RKE2 or k0s node as
// Updater replaces a kubelet. On servers it first saves a snapshot of etcd, or a copy of the
// database of SQLite.
type Supervisor struct {
	*Updater
	host SupervisorHost
}

// NewSupervisor makes the updater. payload is the name of the program: k3s, rke2 or k0s.
func NewSupervisor(h SupervisorHost, payload string) *Supervisor {
	h = flushing{h}
	return &Supervisor{Updater: &Updater{host: h, now: time.Now, payload: payload, what: payload}, host: h}
}

// Name is supervisor.
func (u *Supervisor) Name() string { return "supervisor" }

// Update does the next thing that is missing. What the new program has unpacked is on disk before
// the step is done.
func (u *Supervisor) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	if err := u.repairParts(ctx, t); err != nil {
		return updaters.Result{}, err
	}
	r, err := u.update(ctx, t)
	if err != nil || !r.Done {
		return r, err
	}
	return r, flushParts(u.host)
}

// update saves the snapshot that is missing, and then does what Updater does.
func (u *Supervisor) update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	if db := u.host.SQLite(); db != "" {
		return u.updateStopped(ctx, t, db)
	}
	if r, ok, err := u.saveSnapshot(ctx, t); !ok || err != nil {
		return r, err
	}
	if st, err := os.Stat(snapshotMarker(t)); err == nil && st.ModTime().After(t.Started) {
		t.Started = st.ModTime() // the program is not late because its snapshot was large
	}
	return u.Updater.Update(ctx, t)
}

// Undo restores the old program. It returns no server with etcd over a minor version: the
// old API server may not read the objects that the newer one stored. SQLite has one server,
// whose database is restored with the program.
func (u *Supervisor) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	if u.hasEtcd(t) && minorOf(t.Step.From) != minorOf(t.Step.To) {
		return updaters.Result{}, fmt.Errorf("an older minor version may not read the objects in etcd; the snapshot is in %s: %w", snapshotDir(t), updaters.ErrNotReversible)
	}
	if db := u.host.SQLite(); db != "" && minorOf(t.Step.From) != minorOf(t.Step.To) {
		if r, ok, err := u.restoreSQLite(ctx, t, db); !ok || err != nil {
			return r, err
		}
	}
	return u.Updater.Undo(ctx, t)
}

// snapshotMarker is written when the snapshot is verified.
func snapshotMarker(t updaters.Task) string { return filepath.Join(t.Dir, t.Step.ID+".snapshot") }

func (u *Supervisor) hasEtcd(t updaters.Task) bool {
	return u.host.Etcd() != nil || u.host.SnapshotCommand(t.Rollback) != nil
}

// minorOf v1.35.4+k3s1 is v1.35.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func snapshotDir(t updaters.Task) string { return filepath.Join(t.Rollback, "etcd-snapshot") }

// saveSnapshot has the distribution save and refit verify a snapshot. ok is true if the
// program may be replaced: the snapshot is verified, none is needed, or the program is in
// place already.
func (u *Supervisor) saveSnapshot(ctx context.Context, t updaters.Task) (r updaters.Result, ok bool, err error) {
	command := u.host.SnapshotCommand(snapshotDir(t))
	marker := snapshotMarker(t)
	if _, err := os.Stat(marker); !u.hasEtcd(t) || err == nil {
		return r, true, nil
	}
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return r, false, err
	}
	if placed, err := u.placed(t, path); placed || err != nil {
		return r, placed, err
	}
	if e := u.host.Etcd(); e != nil {
		return u.copyEtcd(ctx, t, e, marker)
	}
	unit := "refit-snapshot-" + t.Step.ID + ".service"
	runs, err := u.host.DetachedRuns(ctx, unit)
	if err != nil || runs {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "%s saves a snapshot of etcd", u.payload), false, err
	}
	files := fmt.Sprintf("%s-%d", marker, t.Attempt)
	end, err := systemd.ReadCommandResult(files + ".json")
	if err != nil {
		return r, false, err
	}
	if end == nil {
		return u.startSnapshot(ctx, t, unit, files, command)
	}
	return u.checkSnapshot(t, end, files, marker)
}

// copyEtcd saves a snapshot through the API of etcd. A file with its final name is whole.
func (u *Supervisor) copyEtcd(ctx context.Context, t updaters.Task, e Etcd, marker string) (r updaters.Result, ok bool, err error) {
	dir := snapshotDir(t)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(t.Dir, 0o700)); err != nil {
		return r, false, err
	}
	size, err := e.Size(ctx)
	if err != nil {
		return r, false, err
	}
	room, err := fsutil.RoomAt(dir)
	if err != nil {
		return r, false, err
	}
	if need := model.EtcdSnapshotSpace(size); room.Free < need {
		return updaters.Fail(v1alpha1.ReasonInsufficientSpace, "a snapshot of etcd needs %d bytes in %s, %d are free; nothing was changed", need, dir, room.Free), false, nil
	}
	path := filepath.Join(dir, "etcd-snapshot.db")
	if err := writeEtcd(ctx, e, path); err != nil {
		return r, false, err
	}
	failpoint.Here(failpoint.EtcdSnapshot)
	name, err := verifiedSnapshot(dir)
	if err != nil {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the snapshot of etcd is not usable, nothing was changed: %v", err), false, nil
	}
	return r, true, fsutil.WriteFile(marker, []byte(name), 0o600)
}

func writeEtcd(ctx context.Context, e Etcd, path string) error {
	temporary := path + "~"
	defer os.Remove(temporary) // a no-op after the rename
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = e.Snapshot(ctx, f)
	}
	if err == nil {
		err = f.Sync()
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	return fsutil.SyncDir(filepath.Dir(path))
}

// checkSnapshot verifies what the command saved.
func (u *Supervisor) checkSnapshot(t updaters.Task, end *systemd.CommandResult, files, marker string) (r updaters.Result, ok bool, err error) {
	if end.Exit != 0 {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the snapshot of etcd ended with status %d, nothing was changed: %s\n%s", end.Exit, end.Error, systemd.TailLog(files+".log", 5)), false, nil
	}
	name, err := verifiedSnapshot(snapshotDir(t))
	if err != nil {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the snapshot of etcd is not usable, nothing was changed: %v", err), false, nil
	}
	return r, true, fsutil.WriteFile(marker, []byte(name), 0o600)
}

func (u *Supervisor) startSnapshot(ctx context.Context, t updaters.Task, unit, files string, command []string) (r updaters.Result, ok bool, err error) {
	if err := errors.Join(os.MkdirAll(snapshotDir(t), 0o700), os.MkdirAll(t.Dir, 0o700)); err != nil {
		return r, false, err
	}
	err = u.host.RunDetached(ctx, unit, "refit: snapshot of etcd before "+t.Step.To, files+".log", files+".json", command)
	failpoint.Here(failpoint.EtcdSnapshot)
	return updaters.InProgress(v1alpha1.ReasonUpdating, "%s saves a snapshot of etcd", u.payload), false, err
}

// verifiedSnapshot returns the name of a whole snapshot: etcd appends the SHA-256 of what
// comes before.
func verifiedSnapshot(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	problem := errors.New("the command has saved no file in " + dir)
	for i := len(entries) - 1; i >= 0; i-- {
		if !entries[i].Type().IsRegular() {
			continue
		}
		if problem = verifySnapshot(filepath.Join(dir, entries[i].Name())); problem == nil {
			return entries[i].Name(), nil
		}
	}
	return "", problem
}

func verifySnapshot(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size := st.Size() - sha256.Size
	if size <= 0 {
		return fmt.Errorf("%s has %d bytes", path, st.Size())
	}
	hash, sum := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(hash, f, size); err != nil {
		return err
	}
	if _, err := io.ReadFull(f, sum); err != nil {
		return err
	}
	if string(hash.Sum(nil)) != string(sum) {
		return fmt.Errorf("%s does not match its checksum", path)
	}
	return nil
}
