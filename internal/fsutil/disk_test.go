package fsutil

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet")
	if err := os.WriteFile(path, []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	content := func() string { b, _ := os.ReadFile(path); return string(b) }
	good, err := Digest(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r      io.Reader
		digest string
	}{
		"what is read is not what was promised": {strings.NewReader("new"), good},
		"the source ends in an error":           {io.MultiReader(strings.NewReader("ol"), broken{}), good},
	} {
		t.Run(name+": the old file stays, nothing else is left", func(t *testing.T) {
			if err := Replace(path, c.r, c.digest, 0o755); err == nil {
				t.Fatal("replaced")
			}
			es, _ := os.ReadDir(filepath.Dir(path))
			if content() != "old" || len(es) != 1 {
				t.Fatalf("content %q, %d files", content(), len(es))
			}
		})
	}
	t.Run("a good source replaces it, with its mode, also while it runs", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "new")
		if err := os.WriteFile(other, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		digest, _ := Digest(other)
		if err := Replace(path, strings.NewReader("new"), digest, 0o750); err != nil {
			t.Fatal(err)
		}
		if st, _ := os.Stat(path); content() != "new" || st.Mode().Perm() != 0o750 {
			t.Fatalf("content %q, mode %v", content(), st.Mode())
		}
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("input/output error") }

func TestRoomAt(t *testing.T) {
	dir := t.TempDir()
	a, err := RoomAt(dir)
	if err != nil || a.Total <= 0 || a.Free > a.Total || a.ID == "" {
		t.Fatalf("%+v, %v", a, err)
	}
	b, err := RoomAt(filepath.Join(dir, "not", "yet", "there"))
	if err != nil || b.ID != a.ID {
		t.Fatalf("of what is not there yet, that of the directory above: %+v, %v", b, err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); err == nil {
		t.Fatal("two have the lock")
	}
	unlock()
	again, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// stuck gives some bytes and then nothing until it is let go.
type stuck struct {
	gave, let chan struct{}
	some      int
}

func (s *stuck) Read(p []byte) (int, error) {
	if s.some == 0 {
		close(s.gave)
		<-s.let
		return 0, errors.New("let go")
	}
	n := min(len(p), s.some)
	s.some -= n
	return n, nil
}

// Killed again and again while a program of 100 MB is replaced, a node must not
// fill up with halves of it. A process that stands still looks the same on disk
// as one that was killed.
func TestReplaceThatIsKilledLeavesAtMostOneHalf(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubelet")
	let := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		s := &stuck{gave: make(chan struct{}), let: let, some: 1000}
		wg.Go(func() { _ = Replace(path, s, "sha256:x", 0o755) })
		<-s.gave
	}
	if es, _ := os.ReadDir(dir); len(es) > 1 {
		t.Errorf("%d files are left", len(es))
	}
	sum := sha256.Sum256([]byte("new"))
	if err := Replace(path, strings.NewReader("new"), "sha256:"+hex.EncodeToString(sum[:]), 0o755); err != nil {
		t.Error(err)
	}
	if es, _ := os.ReadDir(dir); len(es) != 1 {
		t.Errorf("%d files are left after it went through", len(es))
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
		t.Errorf("content %q, %v", got, err)
	}
	close(let)
	wg.Wait()
}
