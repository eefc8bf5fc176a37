package fsutil_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

// Replace leaves the old file or the new one, for any amount of free space. A failed
// attempt leaves nothing that fills the disk.
func TestReplacedOnSmallDisks(t *testing.T) {
	older, newer := bytes.Repeat([]byte("o"), 10_000), bytes.Repeat([]byte("n"), 300_000)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(newer))
	for name, write := range map[string]func(path string) error{
		"Replace":   func(path string) error { return fsutil.Replace(path, bytes.NewReader(newer), digest, 0o755) },
		"WriteFile": func(path string) error { return fsutil.WriteFile(path, newer, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			target := func(dir string) []byte { b, _ := os.ReadFile(filepath.Join(dir, "file")); return b }
			disktest.Writer{
				Write: func(dir string) error { return write(filepath.Join(dir, "file")) },
				Torn: func(dir string) string {
					if b := target(dir); !bytes.Equal(b, older) && !bytes.Equal(b, newer) {
						return "file"
					}
					return ""
				},
				Whole: func(dir string) bool { return bytes.Equal(target(dir), newer) },
			}.Try(t, func(t *testing.T, dir string) {
				t.Helper()
				if err := fsutil.WriteFile(filepath.Join(dir, "file"), older, 0o644); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
