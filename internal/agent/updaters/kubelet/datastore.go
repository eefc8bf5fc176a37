package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// startTime is how long the start of a stopped unit is awaited: systemd continues without.
const startTime = 5 * time.Second

// sqliteMargin is kept free next to a copy of a database.
const sqliteMargin = 64 << 20

func sqliteDir(t updaters.Task) string { return filepath.Join(t.Rollback, "sqlite-snapshot") }

// updateStopped replaces the program while the unit is stopped, after a copy of its
// database. Between copy and swap the old program writes nothing, so the copy has all that
// it ever stored. After a failure before the swap the old program starts again.
func (u *Supervisor) updateStopped(ctx context.Context, t updaters.Task, db string) (updaters.Result, error) {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	placed, err := u.placed(t, path)
	if err != nil {
		return updaters.Result{}, err
	}
	if placed {
		return u.Updater.Update(ctx, t)
	}
	if r, err := tooLittleRoom(db, t.Rollback, "nothing was changed"); err != nil || r.Failed {
		return r, err
	}
	err = u.swapStopped(ctx, t, db)
	start, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTime)
	defer cancel()
	u.started = u.now()
	if started := u.host.RestartKubelet(start); started != nil && start.Err() == nil {
		err = errors.Join(err, started)
	}
	failpoint.Here(failpoint.KubeletRestarted)
	switch {
	case err == nil:
		return updaters.InProgress(v1alpha1.ReasonUpdating, "%s is replaced and starts", u.payload), nil
	case errors.Is(ctx.Err(), context.Canceled):
		return updaters.Result{}, err // the agent stops, and continues here
	}
	reason := v1alpha1.ReasonStepFailed
	if fsutil.IsFull(err) {
		reason = v1alpha1.ReasonInsufficientSpace
	}
	return updaters.Fail(reason, "%s was stopped for a copy of its database and starts again, its program was not replaced: %v", u.payload, err), nil
}

func (u *Supervisor) swapStopped(ctx context.Context, t updaters.Task, db string) error {
	if err := u.host.Stop(ctx); err != nil {
		return err
	}
	failpoint.Here(failpoint.SQLiteStopped)
	if err := copySQLite(ctx, db, sqliteDir(t)); err != nil {
		return fmt.Errorf("copy of %s: %w", db, err)
	}
	// What an earlier attempt restored was another copy.
	for _, mark := range []string{restoringMark(t), restoredMark(t)} {
		if err := os.Remove(mark); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return u.replacePrograms(ctx, t)
}

// tooLittleRoom fails where a copy of the database does not fit: while the unit still runs.
func tooLittleRoom(db, dir, sofar string) (r updaters.Result, err error) {
	files, err := sqliteFiles(db)
	if err != nil {
		return r, err
	}
	need := int64(sqliteMargin)
	for _, f := range files {
		need += f.Size
	}
	room, err := fsutil.RoomAt(dir)
	if err == nil && room.Free < need {
		r = updaters.Fail(v1alpha1.ReasonInsufficientSpace, "a copy of %s needs %d bytes in %s, %d are free; %s", db, need, dir, room.Free, sofar)
	}
	return r, err
}

func restoringMark(t updaters.Task) string { return filepath.Join(t.Rollback, "sqlite-restoring") }
func restoredMark(t updaters.Task) string  { return filepath.Join(t.Rollback, "sqlite-restored") }

// restoreSQLite restores program and database of a server that moved over a minor version,
// while its unit is stopped. ok is true if the old program may start. Until the last mark is
// on disk it does everything again: a unit that a boot started in between has written into
// the database.
func (u *Supervisor) restoreSQLite(ctx context.Context, t updaters.Task, db string) (r updaters.Result, ok bool, err error) {
	path, err := u.host.Kubelet(ctx)
	if err != nil {
		return r, false, err
	}
	needed, err := u.restoreNeeded(t, path)
	if err != nil || !needed {
		return r, err == nil, err
	}
	s, whole, err := readSQLiteSnapshot(sqliteDir(t))
	if err != nil {
		return r, false, err
	}
	if !whole {
		return r, false, fmt.Errorf("%s has no copy of the database: %w", sqliteDir(t), updaters.ErrNotReversible)
	}
	kept := filepath.Join(sqliteDir(t), filepath.Base(db))
	if err := s.verify(ctx, kept); err != nil {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the copy of the database is damaged, it was not restored: %v", err), false, nil
	}
	s.unstage(db) // of a try that was cut off
	if r, err := tooLittleRoom(kept, filepath.Dir(db), "it was not restored"); err != nil || r.Failed {
		return r, false, err
	}
	if err := s.stage(ctx, sqliteDir(t), db); err != nil {
		return r, false, err
	}
	if err := fsutil.WriteFile(restoringMark(t), nil, 0o600); err != nil {
		return r, false, err
	}
	return r, true, u.replaceDatastore(ctx, t, s, path, db)
}

func (u *Supervisor) replaceDatastore(ctx context.Context, t updaters.Task, s sqliteSnapshot, path, db string) error {
	if err := u.host.Stop(ctx); err != nil {
		return err
	}
	failpoint.Here(failpoint.SQLiteStopped)
	if _, err := updaters.Restore(t, u.payload, path); err != nil {
		return err
	}
	failpoint.Here(failpoint.KubeletRestored)
	if err := s.replace(db); err != nil {
		return err
	}
	failpoint.Here(failpoint.SQLiteRestored)
	return fsutil.WriteFile(restoredMark(t), nil, 0o600)
}

// restoreNeeded reports whether the new program may have written into the database: it is in
// place, or a restore has started and not ended.
func (u *Supervisor) restoreNeeded(t updaters.Task, path string) (bool, error) {
	if _, err := os.Stat(restoredMark(t)); err == nil {
		return false, nil
	}
	if _, err := os.Stat(restoringMark(t)); err == nil {
		return true, nil
	}
	return u.placed(t, path)
}
