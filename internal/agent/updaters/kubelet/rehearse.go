package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/etcd"
)

// IsSQLiteSnapshot reports whether a directory has a whole copy of a database.
func IsSQLiteSnapshot(dir string) bool {
	_, ok, err := readSQLiteSnapshot(dir)
	return err == nil && ok
}

// RehearseSQLite restores a copy of a database into a scratch directory, as an undo does next to
// the database, and reads every page of the result.
func RehearseSQLite(ctx context.Context, dir, scratch string) (etcd.Restored, error) {
	s, ok, err := readSQLiteSnapshot(dir)
	if err == nil && !ok {
		err = fmt.Errorf("%s has no copy of a database", dir)
	}
	if err != nil {
		return etcd.Restored{}, err
	}
	base, err := databaseIn(dir)
	if err != nil {
		return etcd.Restored{}, err
	}
	if err := s.verify(ctx, filepath.Join(dir, base)); err != nil {
		return etcd.Restored{}, err
	}
	db := filepath.Join(scratch, base)
	if err := s.stage(ctx, dir, db); err != nil {
		return etcd.Restored{}, err
	}
	if err := s.replace(db); err != nil {
		return etcd.Restored{}, err
	}
	r := etcd.Restored{}
	for _, f := range s.Files {
		r.Bytes += f.Size
	}
	c, err := readSQLite(ctx, db)
	r.Objects = c.Objects
	return r, err
}

// databaseIn returns the name of the database in a snapshot.
func databaseIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		n := e.Name()
		if n != filepath.Base(sqliteRecord(dir)) && !strings.HasPrefix(n, ".") && !strings.HasSuffix(n, "-wal") && !strings.HasSuffix(n, "-journal") {
			return n, nil
		}
	}
	return "", fmt.Errorf("%s has no database", dir)
}
