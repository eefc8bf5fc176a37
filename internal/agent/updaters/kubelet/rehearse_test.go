package kubelet

import (
	"archive/zip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kineObjects of the database in testdata: SQLite 3.40.1 wrote it in kine's schema, with rows
// deleted, records on several pages, a partial index, and a log that has later rows.
const kineObjects, kineObjectsLogged = 53, 58

func unzipDatabase(t *testing.T, without string) string {
	t.Helper()
	z, err := zip.OpenReader("testdata/kine.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := t.TempDir()
	for _, f := range z.File {
		if f.Name == without {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "state.db")
}

// A rehearsal restores what a server with SQLite had, and changes neither database nor copy.
func TestARehearsalReadsADatabaseOfSQLite(t *testing.T) {
	for without, want := range map[string]int64{"": kineObjectsLogged, "state.db-wal": kineObjects} {
		db, kept, scratch := unzipDatabase(t, without), t.TempDir(), t.TempDir()
		if err := copySQLite(t.Context(), db, kept); err != nil {
			t.Fatal(err)
		}
		before, _, err := readSQLiteSnapshot(kept)
		if err != nil {
			t.Fatal(err)
		}
		r, err := RehearseSQLite(t.Context(), kept, scratch)
		if err != nil || r.Objects != want || r.Bytes == 0 {
			t.Errorf("without %q: %+v, want %d objects: %v", without, r, want, err)
		}
		if !before.of(db) || before.verify(t.Context(), filepath.Join(kept, "state.db")) != nil {
			t.Error("the rehearsal changed the database or its copy")
		}
	}
	if _, err := RehearseSQLite(t.Context(), t.TempDir(), t.TempDir()); err == nil {
		t.Error("an empty directory is no snapshot")
	}
}

// What a power cut left behind the last commit in the log is not there for SQLite either.
func TestALogCountsUpToItsLastCommit(t *testing.T) {
	db := unzipDatabase(t, "")
	st, err := os.Stat(db + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(db+"-wal", st.Size()-700); err != nil {
		t.Fatal(err)
	}
	if c, err := readSQLite(t.Context(), db); err != nil || c.Objects < kineObjectsLogged-1 || c.Objects > kineObjectsLogged+1 {
		t.Errorf("%+v %v", c, err)
	}
}

// Damage of the kinds that SQLite's own integrity check finds.
func TestADamagedDatabaseIsNotRestored(t *testing.T) {
	word := func(b []byte, at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	for name, c := range map[string]struct {
		damage func(b []byte) []byte
		says   string
	}{
		"a page that is none":               {func(b []byte) []byte { b[1024] = 7; return b }, "kind 7"},
		"more free pages than there are":    {func(b []byte) []byte { b[atFreePages+3]++; return b }, "list of free pages"},
		"a page that nothing uses":          {func(b []byte) []byte { b[atPages+3]++; return append(b, make([]byte, 1024)...) }, "nothing uses page"},
		"a cell outside of its page":        {func(b []byte) []byte { b[sqliteHeader+8] = 0xff; return b }, "cell at"},
		"a page twice":                      {func(b []byte) []byte { copy(b[1024+8:], b[1024+2*12:1024+2*12]); b[atFreelist+3] = 2; return b }, "list of free pages"},
		"zeros in place of the first table": {func(b []byte) []byte { clear(b[1024:2048]); return b }, "kind 0"},
	} {
		t.Run(name, func(t *testing.T) {
			db := unzipDatabase(t, "state.db-wal")
			b, err := os.ReadFile(db)
			if err != nil {
				t.Fatal(err)
			}
			if word(b, atPages) != uint32(len(b)/1024) {
				t.Fatalf("the database has %d pages in %d bytes", word(b, atPages), len(b))
			}
			if err := os.WriteFile(db, c.damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = readSQLite(t.Context(), db)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	db := unzipDatabase(t, "state.db-wal")
	if err := os.WriteFile(db+"-journal", []byte(journalMagic+"12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSQLite(t.Context(), db); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("with a journal of a change: %v", err)
	}
}

// FuzzDatabase: no bytes make the reader of a database fail otherwise than with an error.
func FuzzDatabase(f *testing.F) {
	f.Add(sqliteBytes("v1.35", 3), walBytes(3))
	z, err := zip.OpenReader("testdata/kine.zip")
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	r, err := z.File[0].Open()
	if err != nil {
		f.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, []byte{})
	f.Fuzz(func(t *testing.T, db, wal []byte) {
		path := filepath.Join(t.TempDir(), "state.db")
		for name, b := range map[string][]byte{path: db, path + "-wal": wal} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if c, err := readSQLite(t.Context(), path); err == nil && int64(c.Pages) == 0 {
			t.Error("a database without pages is read")
		}
	})
}
