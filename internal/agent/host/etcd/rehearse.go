package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Restored is what a rehearsal restored into a scratch directory.
type Restored struct {
	// Bytes of the database, and the Kubernetes objects in it.
	Bytes, Objects int64
}

// Names of buckets and marks in etcd's database (etcd server/storage/schema, mvcc/revision.go).
const (
	bucketKey     = "key"
	bucketMeta    = "meta"
	indexKey      = "consistent_index"
	revisionSize  = 17
	tombstoneMark = 't'
	objectPrefix  = "/registry/"
)

// Rehearse restores a snapshot to the place that it has below a data directory, here a scratch
// directory. It opens it as etcd does, with etcd's own storage, and reads every page and every
// key. It starts no etcd.
func Rehearse(ctx context.Context, snapshot, scratch string) (r Restored, err error) {
	path := filepath.Join(scratch, "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return r, err
	}
	if r.Bytes, err = restoreDatabase(ctx, snapshot, path); err != nil {
		return r, err
	}
	r.Objects, err = readDatabase(ctx, path)
	return r, err
}

// restoreDatabase copies a snapshot without the checksum at its end, and compares that.
func restoreDatabase(ctx context.Context, snapshot, path string) (size int64, err error) {
	in, err := os.Open(snapshot)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return 0, err
	}
	if size = st.Size() - sha256.Size; size <= 0 || size%512 != 0 {
		return 0, fmt.Errorf("%s has %d bytes, which no snapshot has", snapshot, st.Size())
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	_, err = io.CopyN(io.MultiWriter(out, sum), UntilDone{Context: ctx, Reader: in}, size)
	if err == nil {
		_, err = io.ReadFull(in, want)
	}
	if err == nil && !bytes.Equal(sum.Sum(nil), want) {
		err = fmt.Errorf("%s does not match its checksum", snapshot)
	}
	if err == nil {
		err = out.Sync()
	}
	return size, errors.Join(err, out.Close())
}

// UntilDone ends the copy of a large database when its context ends.
type UntilDone struct {
	Context context.Context
	Reader  io.Reader
}

func (u UntilDone) Read(p []byte) (int, error) {
	if err := u.Context.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}

// readDatabase checks every page, and counts the objects of Kubernetes.
func readDatabase(ctx context.Context, path string) (objects int64, err error) {
	defer func() {
		if p := recover(); p != nil { // the storage panics at some damage
			err = fmt.Errorf("etcd's storage cannot read it: %v", p)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoSync: true})
	if err != nil {
		return 0, fmt.Errorf("etcd's storage cannot open it: %w", err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		if err := firstProblem(ctx, tx.Check()); err != nil {
			return err
		}
		keys, meta := tx.Bucket([]byte(bucketKey)), tx.Bucket([]byte(bucketMeta))
		if keys == nil || meta == nil || meta.Get([]byte(indexKey)) == nil {
			return errors.New("it has no buckets of etcd")
		}
		objects, err = countObjects(ctx, keys)
		return err
	})
	return objects, err
}

// firstProblem drains the channel: the check ends with it.
func firstProblem(ctx context.Context, problems <-chan error) (first error) {
	for p := range problems {
		if first == nil {
			first = fmt.Errorf("etcd's storage: %w", p)
		}
	}
	return errors.Join(first, ctx.Err())
}

// countObjects counts keys of Kubernetes whose newest revision is no deletion.
func countObjects(ctx context.Context, keys *bolt.Bucket) (int64, error) {
	alive := map[string]bool{}
	err := keys.ForEach(func(revision, value []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		key, err := keyOf(value)
		if err != nil || len(revision) < revisionSize {
			return fmt.Errorf("revision %x: %w", revision, errors.Join(errWire, err))
		}
		if !bytes.HasPrefix(key, []byte(objectPrefix)) {
			return nil
		}
		if len(revision) > revisionSize && revision[revisionSize] == tombstoneMark {
			delete(alive, string(key))
			return nil
		}
		alive[string(key)] = true
		return nil
	})
	return int64(len(alive)), err
}

// keyOf a value in the bucket: mvccpb.KeyValue has the key first.
func keyOf(value []byte) ([]byte, error) {
	fs, err := fields(value)
	if err != nil || len(fs) == 0 || fs[0].num != 1 {
		return nil, errors.Join(errWire, err)
	}
	return fs[0].bytes, nil
}
