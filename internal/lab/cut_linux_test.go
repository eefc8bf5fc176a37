package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestACopyKeepsHoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "disk"), filepath.Join(dir, "copy")
	f, err := os.Create(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for off, text := range map[int64]string{0: "begin", 5 << 20: "middle"} {
		if _, err := f.WriteAt([]byte(text), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	if err := copySparse(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(to, &st); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) || st.Blocks*512 > 1<<20 {
		t.Errorf("%d of %d bytes are the same, %d on disk", len(got), len(want), st.Blocks*512)
	}
}
