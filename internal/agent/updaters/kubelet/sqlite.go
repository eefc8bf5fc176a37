package kubelet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// sqliteParts are the endings of the files that a stopped database consists of: the pages,
// the log of committed changes, and the journal of a change that was cut off. SQLite makes
// a fourth (-shm) anew at each start.
var sqliteParts = []string{"", "-wal", "-journal"}

const sqliteIndex = "-shm"

// sqliteFile is one file of a snapshot.
type sqliteFile struct {
	Part     string      `json:"part"`
	Digest   string      `json:"digest"`
	Size     int64       `json:"size"`
	Modified time.Time   `json:"modified"`
	Mode     fs.FileMode `json:"mode"`
}

// sqliteSnapshot is a verified copy of a database that no process had open.
type sqliteSnapshot struct {
	Files []sqliteFile `json:"files"`
}

func sqliteRecord(dir string) string { return filepath.Join(dir, "snapshot.json") }

// readSQLiteSnapshot returns the snapshot of a directory; ok is false without a whole one.
func readSQLiteSnapshot(dir string) (s sqliteSnapshot, ok bool, err error) {
	ok, err = fsutil.ReadJSON(sqliteRecord(dir), &s)
	return s, ok, err
}

// sqliteFiles describes the files of a database, without their digests.
func sqliteFiles(db string) (out []sqliteFile, err error) {
	for _, part := range sqliteParts {
		st, err := os.Stat(db + part)
		if part != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, sqliteFile{Part: part, Size: st.Size(), Modified: st.ModTime().UTC(), Mode: st.Mode().Perm()})
	}
	return out, nil
}

// of reports whether the database is still the one that was copied.
func (s sqliteSnapshot) of(db string) bool {
	now, err := sqliteFiles(db)
	if err != nil || len(now) != len(s.Files) {
		return false
	}
	for i, f := range s.Files {
		if now[i].Digest = f.Digest; now[i] != f {
			return false
		}
	}
	return true
}

// copySQLite copies a database that no process has open. Its record is written last: without
// it there is no snapshot.
func copySQLite(ctx context.Context, db, dir string) error {
	if s, ok, err := readSQLiteSnapshot(dir); err == nil && ok && s.of(db) {
		return nil
	}
	if err := emptyDir(dir); err != nil {
		return err
	}
	files, err := sqliteFiles(db)
	if err != nil {
		return err
	}
	s := sqliteSnapshot{Files: files}
	name := filepath.Join(dir, filepath.Base(db))
	for i := range s.Files {
		f := &s.Files[i]
		if f.Digest, err = digestFile(ctx, db+f.Part); err != nil {
			return err
		}
		if err := copyVerified(ctx, db+f.Part, name+f.Part, f.Digest, f.Mode); err != nil {
			return err
		}
	}
	if !s.of(db) {
		return fmt.Errorf("%s changed while it was copied: another process has it open", db)
	}
	if err := s.verify(ctx, name); err != nil {
		return err
	}
	failpoint.Here(failpoint.SQLiteCopied)
	return fsutil.WriteJSON(sqliteRecord(dir), s)
}

// emptyDir removes an older copy, its record first.
func emptyDir(dir string) error {
	if err := os.Remove(sqliteRecord(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
}

// verify reads the copies again, and what SQLite wrote about their size.
func (s sqliteSnapshot) verify(ctx context.Context, name string) error {
	for _, f := range s.Files {
		have, err := digestFile(ctx, name+f.Part)
		if err != nil {
			return err
		}
		if have != f.Digest {
			return fmt.Errorf("%s has digest %s, %s was copied", name+f.Part, have, f.Digest)
		}
	}
	return checkSQLite(name)
}

// Places of the header of a database (sqlite.org/fileformat.html).
const (
	sqliteMagic   = "SQLite format 3\x00"
	sqliteHeader  = 100
	walHeader     = 32
	walMagic      = 0x377f0682 // the last bit is the order of bytes in checksums
	atPageSize    = 16
	atChange      = 24
	atPages       = 28
	atValidFor    = 92
	atWALPageSize = 8
)

// checkSQLite verifies that a file has a database's header and all pages that it says, and
// that the log is one of this database.
func checkSQLite(name string) error {
	head, size, err := readHead(name, sqliteHeader)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(head, []byte(sqliteMagic)) {
		return fmt.Errorf("%s has no header of SQLite", name)
	}
	page := int64(binary.BigEndian.Uint16(head[atPageSize:]))
	if page == 1 {
		page = 65536
	}
	if page < 512 || page&(page-1) != 0 {
		return fmt.Errorf("%s has pages of %d bytes, which SQLite has not", name, page)
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(head[at:]) }
	pages := int64(word(atPages))
	if word(atChange) != word(atValidFor) {
		pages = 1 // the number is of an older version of SQLite, which did not count
	}
	if size < pages*page || size%page != 0 {
		return fmt.Errorf("%s has %d bytes, its header says %d pages of %d", name, size, pages, page)
	}
	return checkWAL(name+"-wal", page)
}

func checkWAL(name string, page int64) error {
	head, size, err := readHead(name, walHeader)
	if errors.Is(err, fs.ErrNotExist) || size == 0 && errors.Is(err, io.EOF) {
		return nil // all changes are in the pages
	}
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(head)&^1 != walMagic || int64(binary.BigEndian.Uint32(head[atWALPageSize:])) != page {
		return fmt.Errorf("%s is no log of this database", name)
	}
	return nil
}

func readHead(name string, n int) (head []byte, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	head = make([]byte, n)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, st.Size(), fmt.Errorf("%s: %w", name, err)
	}
	return head, st.Size(), nil
}

// Staged copies are next to the database under a name of refit's, so that each needs a
// rename only.
func staged(db, part string) string {
	return filepath.Join(filepath.Dir(db), "refit-restore-"+filepath.Base(db)+part)
}

// stage copies the snapshot next to the database, which may be in use.
func (s sqliteSnapshot) stage(ctx context.Context, dir, db string) error {
	for _, f := range s.Files {
		if err := copyVerified(ctx, filepath.Join(dir, filepath.Base(db)+f.Part), staged(db, f.Part), f.Digest, f.Mode); err != nil {
			s.unstage(db)
			return err
		}
	}
	return nil
}

func (s sqliteSnapshot) unstage(db string) {
	for _, f := range s.Files {
		_ = os.Remove(staged(db, f.Part)) // the next try overwrites it
	}
}

// replace puts the staged files in place of a database that no process has open. The log of
// the newer database goes first: SQLite would apply it to the older pages.
func (s sqliteSnapshot) replace(db string) error {
	for _, part := range append([]string{sqliteIndex}, sqliteParts[1:]...) {
		if err := os.Remove(db + part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, f := range s.Files {
		if err := os.Rename(staged(db, f.Part), db+f.Part); err != nil {
			return err
		}
		failpoint.Here(failpoint.SQLiteRenamed)
	}
	return fsutil.SyncDir(filepath.Dir(db))
}

func copyVerified(ctx context.Context, from, to, digest string, mode fs.FileMode) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return fsutil.Replace(to, etcd.UntilDone{Context: ctx, Reader: f}, digest, mode)
}

func digestFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return fsutil.DigestOf(etcd.UntilDone{Context: ctx, Reader: f})
}
