package service

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// etcdSnapshot writes an empty database of etcd with its checksum, made some time ago.
func etcdSnapshot(t *testing.T, path string, age time.Duration) {
	t.Helper()
	made := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(made, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket([]byte("key")); err != nil {
			return err
		}
		meta, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		return meta.Put([]byte("consistent_index"), make([]byte, 8))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	put(t, path, append(b, sum[:]...), age)
}

func put(t *testing.T, path string, b []byte, age time.Duration) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// The newest snapshot counts, of whichever update; the scratch directory is gone afterwards.
func TestARehearsalTakesTheNewestSnapshot(t *testing.T) {
	dir := t.TempDir()
	s := &rehearsal{dir}
	expect := func(reason, snapshot string) {
		t.Helper()
		r := s.run(t.Context(), "x")
		found := ""
		if r.Problem != nil {
			found = r.Problem.Reason
			if r.Problem.Fix == "" || r.Problem.Message == "" {
				t.Errorf("%+v", r.Problem)
			}
		}
		if found != reason || r.Snapshot != snapshot {
			t.Errorf("%+v %+v, want %q of %q", r, r.Problem, reason, snapshot)
		}
		if snapshot != "" && (r.Datastore != model.DatastoreEtcd || r.SnapshotAt == nil || reason == "" && r.Bytes == 0) {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(s.scratch()); !os.IsNotExist(err) {
			t.Errorf("the scratch directory is still there: %v", err)
		}
	}
	expect(v1alpha1.ReasonSnapshotMissing, "")
	old := filepath.Join(dir, "rollback", "u1", "etcd-snapshot-1.db")
	etcdSnapshot(t, old, 2*time.Hour)
	put(t, filepath.Join(dir, "rollback", "u2", "etcd-snapshot-1.db~"), nil, time.Minute) // cut off
	put(t, filepath.Join(s.scratch(), "left"), nil, time.Hour)                            // of an agent that died
	expect("", old)
	newer := filepath.Join(dir, "rollback", "u2", "etcd-snapshot", "refit-n1-1")
	etcdSnapshot(t, newer, time.Hour)
	expect("", newer)
	damaged := filepath.Join(dir, "rollback", "u3", "etcd-snapshot", "refit-n1-2")
	put(t, damaged, make([]byte, 4096+sha256.Size), time.Minute)
	expect(v1alpha1.ReasonSnapshotUnusable, damaged)
}
