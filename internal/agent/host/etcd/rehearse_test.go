package etcd

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// keyValue is an mvccpb.KeyValue of a key alone, as etcd stores a deletion, or with a value.
func keyValue(key, value string) []byte {
	b := append([]byte{0x0a}, binary.AppendUvarint(nil, uint64(len(key)))...)
	b = append(b, key...)
	if value != "" {
		b = append(append(b, 0x2a), binary.AppendUvarint(nil, uint64(len(value)))...)
		b = append(b, value...)
	}
	return b
}

// snapshotWith writes a database of etcd with changes of keys, and its checksum.
func snapshotWith(t *testing.T, change func(tx *bolt.Tx) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	seal(t, path)
	return path
}

// seal appends the checksum that etcd appends.
func seal(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if err := os.WriteFile(path, append(b, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ofEtcd(tx *bolt.Tx) error {
	keys, err := tx.CreateBucket([]byte(bucketKey))
	if err != nil {
		return err
	}
	meta, err := tx.CreateBucket([]byte(bucketMeta))
	if err != nil {
		return err
	}
	if err := meta.Put([]byte(indexKey), make([]byte, 8)); err != nil {
		return err
	}
	for i, c := range []struct {
		key     string
		deleted bool
	}{{"/registry/pods/a", false}, {"/registry/pods/b", false}, {"/registry/pods/a", true}, {"compact_rev_key", false}, {"/registry/pods/c", false}, {"/registry/pods/b", false}} {
		revision := binary.BigEndian.AppendUint64(nil, uint64(i+2))
		revision = append(append(revision, '_'), make([]byte, 8)...)
		value := keyValue(c.key, strings.Repeat("x", 3000))
		if c.deleted {
			revision, value = append(revision, tombstoneMark), keyValue(c.key, "")
		}
		if err := keys.Put(revision, value); err != nil {
			return err
		}
	}
	return nil
}

func TestARehearsalReadsASnapshotOfEtcd(t *testing.T) {
	path, scratch := snapshotWith(t, ofEtcd), t.TempDir()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Rehearse(t.Context(), path, scratch)
	if err != nil || r.Objects != 2 || r.Bytes != int64(len(before)-sha256.Size) {
		t.Errorf("%+v %v", r, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the snapshot changed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(scratch, "member", "snap", "db")); err != nil {
		t.Error(err)
	}
}

func TestAnUnusableSnapshotIsNotRestored(t *testing.T) {
	rewrite := func(change func(b []byte) []byte, sealed bool) string {
		path := snapshotWith(t, ofEtcd)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if sealed {
			b = b[:len(b)-sha256.Size]
		}
		if err := os.WriteFile(path, change(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if sealed {
			seal(t, path)
		}
		return path
	}
	for name, c := range map[string]struct{ path, says string }{
		"a byte of another value":       {rewrite(func(b []byte) []byte { b[9000] ^= 1; return b }, false), "checksum"},
		"the end is missing":            {rewrite(func(b []byte) []byte { return b[:len(b)-512] }, false), "checksum"},
		"no whole pages":                {rewrite(func(b []byte) []byte { return b[:len(b)-7] }, false), "which no snapshot has"},
		"damaged before it was saved":   {rewrite(func(b []byte) []byte { clear(b[8192:]); return b }, true), "storage"},
		"both headers damaged":          {rewrite(func(b []byte) []byte { clear(b[:8192]); return b }, true), "storage cannot open"},
		"a database of another program": {snapshotWith(t, func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("v1")); return err }), "no buckets of etcd"},
		"a file that is not there":      {filepath.Join(t.TempDir(), "none"), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := Rehearse(t.Context(), c.path, t.TempDir()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v %v, want %q", r, err, c.says)
			}
		})
	}
}
