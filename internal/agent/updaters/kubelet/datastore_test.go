package kubelet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/model"
)

func (n *simServer) SQLite() string { return n.db }

// Stop ends a program that closes its database, which removes the log; every second one is
// killed before it does.
func (n *simServer) Stop(context.Context) error {
	if n.stops++; n.stops%2 == 1 && n.running != "" {
		_ = errors.Join(os.Remove(n.db+"-wal"), os.Remove(n.db+sqliteIndex))
	}
	n.running, n.stopping = "", 0
	return nil
}

// boot starts what is in place, as a machine does that lost its power.
func (n *simServer) boot(ticks int) {
	n.running, n.stopping, n.age = n.file(), 0, 0
	for range ticks {
		n.tick()
		n.write()
	}
}

// sqliteBytes is a database of two pages with a schema and a count of writes in the second.
func sqliteBytes(schema string, writes int) []byte {
	b := make([]byte, 8192)
	copy(b, sqliteMagic)
	binary.BigEndian.PutUint16(b[atPageSize:], 4096)
	for at, v := range map[int]int{atChange: writes, atPages: 2, atValidFor: writes} {
		binary.BigEndian.PutUint32(b[at:], uint32(v))
	}
	copy(b[4096:], fmt.Sprintf("%s %d\n", schema, writes))
	return b
}

func walBytes(writes int) []byte {
	b := make([]byte, walHeader)
	binary.BigEndian.PutUint32(b, walMagic)
	binary.BigEndian.PutUint32(b[atWALPageSize:], 4096)
	return append(b, fmt.Sprint(writes)...)
}

// writeDB is what a server does: pages, log and index always fit each other.
func (n *simServer) writeDB(schema string, writes int) {
	for name, b := range map[string][]byte{"": sqliteBytes(schema, writes), "-wal": walBytes(writes), sqliteIndex: nil} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(n.db), 0o700), os.WriteFile(n.db+name, b, 0o600)); err != nil {
			panic(err)
		}
	}
}

func readDB(db string) (schema string, writes int, err error) {
	b, err := os.ReadFile(db)
	if err == nil && len(b) > 4096 {
		_, err = fmt.Sscan(string(b[4096:]), &schema, &writes)
	}
	if wal, werr := os.ReadFile(db + "-wal"); err == nil && (!errors.Is(werr, fs.ErrNotExist) && !bytes.Equal(wal, walBytes(writes))) {
		err = errors.New("the log is of another database")
	}
	return schema, writes, err
}

// readsDB fails for an older program with what a newer one stored.
func (n *simServer) readsDB() error {
	if n.db == "" || n.running == "" {
		return nil
	}
	schema, _, err := readDB(n.db)
	if err == nil && schema > minorOf(n.running) {
		err = errors.New("no kind is registered for " + schema)
	}
	return err
}

func (n *simServer) KubeletHealthy(ctx context.Context) error {
	return errors.Join(n.readsDB(), n.simNode.KubeletHealthy(ctx))
}

// write stores one object with the running program.
func (n *simServer) write() {
	if n.db == "" || n.running == "" || n.readsDB() != nil {
		return
	}
	_, writes, _ := readDB(n.db)
	n.writeDB(minorOf(n.running), writes+1)
}

func sqliteFixture(from, to string) func(t *testing.T) *updatertest.Fixture {
	return func(t *testing.T) *updatertest.Fixture {
		f, _ := newServer(t, model.DatastoreSQLite, from, to)
		return f
	}
}

// drive calls an updater until it ends, with a new process each time.
func drive(t *testing.T, f *updatertest.Fixture, call func(updaters.Updater) (updaters.Result, error)) updaters.Result {
	t.Helper()
	for range 200 {
		if r, err := call(f.Make()); err == nil && (r.Done || r.Failed) {
			return r
		}
		f.Tick()
	}
	t.Fatal("no end")
	return updaters.Result{}
}

func update(t *testing.T, f *updatertest.Fixture) updaters.Result {
	t.Helper()
	return drive(t, f, func(u updaters.Updater) (updaters.Result, error) { return u.Update(t.Context(), f.Task) })
}

func undo(t *testing.T, f *updatertest.Fixture) updaters.Result {
	t.Helper()
	return drive(t, f, func(u updaters.Updater) (updaters.Result, error) { return u.Undo(t.Context(), f.Task) })
}

// cutAt cuts the power at the first pass of a point, after which the machine boots and its
// unit writes.
func cutAt(t *testing.T, n *simServer, point string, f func()) {
	t.Helper()
	cut := false
	restore := failpoint.OnHit(func(name string) {
		if name == point && !cut {
			cut = true
			panic(killed{})
		}
	})
	defer restore()
	func() {
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		f()
	}()
	if !cut {
		t.Fatalf("%s was not passed", point)
	}
	n.boot(5)
}

// A power cut at any line, and a boot that starts what is in place: the copy still has all
// that the old program stored, and the undo returns exactly that.
func TestSQLiteSurvivesPowerCuts(t *testing.T) {
	const from, to = "v1.35.4+k3s1", "v1.36.3+k3s1"
	none := "none"
	for _, cut := range []string{none, failpoint.SQLiteStopped, failpoint.SQLiteCopied, failpoint.KubeletReplaced, failpoint.KubeletRestarted} {
		for _, undoCut := range []string{none, failpoint.SQLiteStopped, failpoint.KubeletRestored, failpoint.SQLiteRenamed, failpoint.SQLiteRestored} {
			f, n := newServer(t, model.DatastoreSQLite, from, to)
			stored := 0 // by the old program, when the new one came
			restore := failpoint.OnHit(func(name string) {
				if name == failpoint.KubeletReplaced {
					_, stored, _ = readDB(n.db)
				}
			})
			if cut != none {
				cutAt(t, n, cut, func() { update(t, f) })
				if cut == failpoint.KubeletReplaced || cut == failpoint.KubeletRestarted {
					_, stored, _ = readDB(filepath.Join(sqliteDir(f.Task), "state.db"))
				}
				restore = failpoint.OnHit(func(name string) {
					if name == failpoint.KubeletReplaced {
						_, stored, _ = readDB(n.db)
					}
				})
			}
			if r := update(t, f); !r.Done || f.State() != to {
				t.Fatalf("%s: %+v at %s", cut, r, f.State())
			}
			restore()
			if _, kept, err := readDB(filepath.Join(sqliteDir(f.Task), "state.db")); err != nil || kept != stored {
				t.Errorf("%s: the copy has %d writes, the old program stored %d: %v", cut, kept, stored, err)
			}
			if undoCut != none {
				cutAt(t, n, undoCut, func() { undo(t, f) })
			}
			restored := 0
			end := failpoint.OnHit(func(name string) {
				if name == failpoint.SQLiteRestored {
					_, restored, _ = readDB(n.db)
				}
			})
			r := undo(t, f)
			end()
			if !r.Done || f.State() != from || restored != stored {
				t.Errorf("%s, undo cut at %s: %+v at %s, %d writes restored of %d", cut, undoCut, r, f.State(), restored, stored)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(n.db), "*refit-*")); len(left) > 0 {
				t.Errorf("%s, undo cut at %s: left %v", cut, undoCut, left)
			}
		}
	}
}

// An undo within a minor version, and of a step that replaced nothing, restores no data.
func TestSQLiteIsRestoredOverAMinorOnly(t *testing.T) {
	for name, c := range map[string]struct {
		to  string
		cut string
	}{
		"another build":       {"v1.35.4+k3s2", ""},
		"before the copy":     {"v1.36.3+k3s1", failpoint.SQLiteStopped},
		"the copy is whole":   {"v1.36.3+k3s1", failpoint.SQLiteCopied},
		"another build, kept": {"v1.35.4+k3s2", failpoint.KubeletReplaced},
	} {
		f, n := newServer(t, model.DatastoreSQLite, "v1.35.4+k3s1", c.to)
		if c.cut == "" {
			update(t, f)
		} else {
			cutAt(t, n, c.cut, func() { update(t, f) })
		}
		_, before, _ := readDB(n.db)
		r := undo(t, f)
		if _, after, err := readDB(n.db); !r.Done || f.State() != f.From || after < before || err != nil {
			t.Errorf("%s: %+v at %s, %d writes of %d: %v", name, r, f.State(), after, before, err)
		}
	}
}

// If anything is wrong before the swap, the old program runs again and the step fails.
func TestSQLiteFailsBeforeTheSwap(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(*updatertest.Fixture, *simServer)
		want   string
	}{
		"no database": {func(_ *updatertest.Fixture, n *simServer) { n.truncate(0) }, "EOF"},
		"torn":        {func(_ *updatertest.Fixture, n *simServer) { n.truncate(4096) }, "its header says 2 pages"},
		"not SQLite": {func(_ *updatertest.Fixture, n *simServer) {
			_ = os.WriteFile(n.db, make([]byte, 8192), 0o600)
		}, "no header of SQLite"},
		"another log": {func(_ *updatertest.Fixture, n *simServer) {
			n.stops = 1 // the next one leaves the log
			_ = os.WriteFile(n.db+"-wal", make([]byte, walHeader), 0o600)
		}, "no log of this database"},
		"no place for the copy": {func(f *updatertest.Fixture, _ *simServer) {
			_ = errors.Join(os.MkdirAll(f.Task.Rollback, 0o700), os.WriteFile(filepath.Join(f.Task.Rollback, "k3s"), nil, 0o600), os.Mkdir(filepath.Join(f.Task.Rollback, ".refit-k3s"), 0o700))
			_ = os.WriteFile(filepath.Join(f.Task.Rollback, "k3s"), []byte("v1.35.4+k3s1"), 0o600)
			_ = os.Mkdir(filepath.Join(filepath.Dir(f.Task.Rollback), "usr", ".refit-k3s"), 0o700)
		}, "replace"},
	} {
		f, n := newServer(t, model.DatastoreSQLite, "v1.35.4+k3s1", "v1.36.3+k3s1")
		c.broken(f, n)
		r, err := f.Make().Update(t.Context(), f.Task)
		if err != nil || !r.Failed || !strings.Contains(r.Message, c.want) || n.file() != f.From || n.running != f.From {
			t.Errorf("%s: %+v %v, %q runs", name, r, err, n.running)
		}
		if _, whole, _ := readSQLiteSnapshot(sqliteDir(f.Task)); whole && name != "no place for the copy" {
			t.Errorf("%s: a copy is on record", name)
		}
	}
}

func (n *simServer) truncate(size int64) {
	if err := os.Truncate(n.db, size); err != nil {
		panic(err)
	}
}

// A file system without room for the copy is noticed while the unit runs, and one that fills
// up meanwhile leaves no copy on record.
func TestSQLiteOnAFullDisk(t *testing.T) {
	f, n := newServer(t, model.DatastoreSQLite, "v1.35.4+k3s1", "v1.36.3+k3s1")
	small := disktest.Tmpfs(t, 1<<20)
	f.Task.Rollback = filepath.Join(small.Dir, "rollback")
	if r, err := f.Make().Update(t.Context(), f.Task); err != nil || !r.Failed || r.Reason != "InsufficientSpace" || n.stops != 0 {
		t.Errorf("%+v %v after %d stops", r, err, n.stops)
	}
	n.writeDB("v1.35", 7)
	if err := os.Truncate(n.db, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := copySQLite(t.Context(), n.db, sqliteDir(f.Task)); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
	if _, whole, _ := readSQLiteSnapshot(sqliteDir(f.Task)); whole {
		t.Error("half a copy is on record")
	}
}

// A database that changes while it is copied is in use: its copy is none.
func TestSQLiteInUseIsNotCopied(t *testing.T) {
	f, n := newServer(t, model.DatastoreSQLite, "v1.35.4+k3s1", "v1.36.3+k3s1")
	for at := range 12 {
		reads := 0
		ctx := writesMeanwhile{t.Context(), func() {
			if reads++; reads == at+1 {
				n.write()
			}
		}}
		err := copySQLite(ctx, n.db, filepath.Join(f.Task.Rollback, fmt.Sprint(at)))
		if reads > at && err == nil {
			if _, writes, err := readDB(filepath.Join(f.Task.Rollback, fmt.Sprint(at), "state.db")); err != nil || writes != at+1 && writes != at+2 {
				t.Errorf("a write at read %d: %d, %v", at, writes, err)
			}
		}
	}
}

type writesMeanwhile struct {
	context.Context
	read func()
}

func (w writesMeanwhile) Err() error { w.read(); return w.Context.Err() }

// A damaged copy replaces nothing: the new server continues.
func TestADamagedCopyIsNotRestored(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"cut off": func(dir string) error { return os.Truncate(filepath.Join(dir, "state.db"), 100) },
		"changed": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "state.db"), sqliteBytes("v1.35", 1), 0o600)
		},
		"no data": func(dir string) error { return os.Remove(filepath.Join(dir, "state.db")) },
	} {
		f, n := newServer(t, model.DatastoreSQLite, "v1.35.4+k3s1", "v1.36.3+k3s1")
		for range 3 {
			n.write()
		}
		if r := update(t, f); !r.Done {
			t.Fatal(r)
		}
		if err := damage(sqliteDir(f.Task)); err != nil {
			t.Fatal(err)
		}
		stops := n.stops
		r, err := f.Make().Undo(t.Context(), f.Task)
		if !r.Failed && err == nil || f.State() != f.To || n.stops != stops {
			t.Errorf("%s: %+v %v at %s", name, r, err, f.State())
		}
	}
	f, _ := newServer(t, model.DatastoreSQLite, "v1.35.4+k3s1", "v1.36.3+k3s1")
	update(t, f)
	if err := os.RemoveAll(sqliteDir(f.Task)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Make().Undo(t.Context(), f.Task); !errors.Is(err, updaters.ErrNotReversible) || f.State() != f.To {
		t.Errorf("no copy: %v at %s", err, f.State())
	}
}

// What was restored once does not count for a later attempt.
func TestASecondAttemptCopiesAgain(t *testing.T) {
	f, n := newServer(t, model.DatastoreSQLite, "v1.35.4+k3s1", "v1.36.3+k3s1")
	for range 2 {
		update(t, f)
		if r := undo(t, f); !r.Done || f.State() != f.From {
			t.Fatalf("%+v at %s", r, f.State())
		}
		n.write()
	}
	_, kept, _ := readDB(filepath.Join(sqliteDir(f.Task), "state.db"))
	if _, now, _ := readDB(n.db); kept < 3 || now < kept {
		t.Errorf("the second copy has %d writes, the database %d", kept, now)
	}
}
