package updaters

import (
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// What is kept first is what was there before the update; what a later try finds
// may be half changed already.
func TestWhatIsKeptFirstIsPutBack(t *testing.T) {
	dir := t.TempDir()
	task := Task{Rollback: filepath.Join(dir, "rollback")}
	path := filepath.Join(dir, "file")
	write(t, path, "before", 0o640)
	for _, text := range []string{"half changed", "changed"} {
		if err := BackUp(task, "file", path); err != nil {
			t.Fatal(err)
		}
		write(t, path, text, 0o600)
	}
	for range 2 {
		if ok, err := Restore(task, "file", path); !ok || err != nil {
			t.Fatalf("%v %v", ok, err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "before" {
		t.Fatalf("%q %v", b, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v, %v", st.Mode(), err)
	}
}

// A file that was not there is gone again, also if it was there at a later try.
func TestAFileThatWasNotThereIsRemoved(t *testing.T) {
	dir := t.TempDir()
	task := Task{Rollback: filepath.Join(dir, "rollback")}
	path := filepath.Join(dir, "file")
	for range 2 {
		if err := BackUp(task, "file", path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "new", 0o600)
	}
	if ok, err := Restore(task, "file", path); !ok || err != nil {
		t.Fatalf("%v %v", ok, err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("it is still there: %v", err)
	}
}

// What was never kept was never changed.
func TestNothingKeptIsNothingPutBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write(t, path, "mine", 0o600)
	if ok, err := Restore(Task{Rollback: filepath.Join(dir, "none")}, "file", path); ok || err != nil {
		t.Fatalf("%v %v", ok, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "mine" {
		t.Fatalf("%q", b)
	}
}
