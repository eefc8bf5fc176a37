package bundlecmd

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

// Every command that writes files, on disks without room: a clear error, no file that
// looks whole and is not, and the same command goes through when there is room.
func TestOutputsOnSmallDisks(t *testing.T) {
	src := site(t)
	payload := make([]byte, 300_000)
	for i := range payload {
		payload[i] = byte(rand.N(256))
	}
	if err := os.WriteFile("kubelet", payload, 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "bundle", "create", "--output", "whole", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet")
	whole, err := os.ReadFile("whole")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) error {
		if r := refit(t, args...); r.code != console.ExitOK {
			return errors.New(r.err)
		}
		return nil
	}
	is := func(dir, name string, want []byte) bool {
		b, err := os.ReadFile(filepath.Join(dir, name))
		return err == nil && bytes.Equal(b, want)
	}
	there := func(dir, name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	oneOf := func(name string, want []byte) disktest.Writer {
		return disktest.Writer{
			Torn: func(dir string) string {
				if there(dir, name) && !is(dir, name, want) {
					return name
				}
				return ""
			},
			Whole: func(dir string) bool { return is(dir, name, want) }, Kept: []string{name},
		}
	}
	empty := func(t *testing.T, dir string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("bundle create", func(t *testing.T) {
		w := oneOf("b", whole)
		w.Write = func(dir string) error {
			return run("bundle", "create", "--output", filepath.Join(dir, "b"), "--key", filepath.Join(src, "keys/refit.key"), "oci:"+filepath.Join(src, "layout"), "payload:kubelet@v1.36.3="+filepath.Join(src, "kubelet"))
		}
		w.Partial = []string{"b.partial"} // the next try goes on with it
		w.Try(t, empty)
	})
	t.Run("bundle extract", func(t *testing.T) {
		w := oneOf("k", payload)
		w.Write = func(dir string) error {
			return run("bundle", "extract", filepath.Join(src, "whole"), "kubelet", "--output", filepath.Join(dir, "k"))
		}
		w.Try(t, empty)
	})
	t.Run("bundle write to a file", func(t *testing.T) {
		w := oneOf("m", whole)
		w.Write = func(dir string) error {
			return run("bundle", "write", filepath.Join(src, "whole"), filepath.Join(dir, "m"))
		}
		w.Try(t, empty)
	})
	t.Run("bundle write over a file", func(t *testing.T) {
		older := bytes.Repeat([]byte("o"), 5_000)
		w := oneOf("m", whole)
		torn := w.Torn
		w.Torn = func(dir string) string {
			if is(dir, "m", older) {
				return ""
			}
			return torn(dir)
		}
		w.Write = func(dir string) error {
			return run("bundle", "write", filepath.Join(src, "whole"), filepath.Join(dir, "m"))
		}
		w.Try(t, func(t *testing.T, dir string) {
			t.Helper()
			if err := fsutil.WriteFile(filepath.Join(dir, "m"), older, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("keys generate", func(t *testing.T) {
		pair := func(dir string) bool {
			pub, err := os.ReadFile(filepath.Join(dir, publicKeyFile))
			key, err2 := os.ReadFile(filepath.Join(dir, privateKeyFile))
			return errors.Join(err, err2) == nil && bytes.HasSuffix(pub, []byte("-----END PUBLIC KEY-----\n")) && bytes.HasSuffix(key, []byte("-----END PRIVATE KEY-----\n"))
		}
		disktest.Writer{
			Write: func(dir string) error { return run("keys", "generate", "--out", dir) },
			Torn: func(dir string) string {
				if !pair(dir) && (there(dir, publicKeyFile) || there(dir, privateKeyFile)) {
					return "a pair of keys"
				}
				return ""
			},
			Whole: pair,
		}.Try(t, empty)
	})
}
