package nodefiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

func TestWriteLookRemove(t *testing.T) {
	f := FS{Root: t.TempDir(), Refuse: model.ProtectedPath}
	uid, gid := os.Getuid(), os.Getgid()
	if err := f.Write("/etc/a/b.conf", []byte("one"), 0o640, uid, gid); err != nil {
		t.Fatal(err)
	}
	s, err := f.Inspect("/etc/a/b.conf")
	if err != nil || !s.Regular || s.Mode != 0o640 || s.Digest != model.DigestOf([]byte("one")) {
		t.Fatalf("%+v %v", s, err)
	}
	if err := f.Remove("/etc/a/b.conf"); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Inspect("/etc/a/b.conf"); err != nil || s.Exists {
		t.Fatalf("%+v %v", s, err)
	}
	if err := f.Remove("/no/such/file"); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(filepath.Join(f.Root, "etc/a"))
	if len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
}

// A write replaces the temporary file that a killed process left.
func TestALeftoverOfACutOffWriteIsReplaced(t *testing.T) {
	f := FS{Root: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(f.Root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Root, "etc", ".x.refit~"), []byte("half of a muc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Write("/etc/x", []byte("whole"), 0o644, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	all, _ := os.ReadDir(filepath.Join(f.Root, "etc"))
	if len(all) != 1 || all[0].Name() != "x" {
		t.Fatalf("%v", all)
	}
}

func TestLinksLeadNowhere(t *testing.T) {
	outside := t.TempDir()
	for name, c := range map[string]struct{ link, to, path, says string }{
		"out of the root":                   {"etc/out", outside, "/etc/out/x", "leads out"},
		"into what kubeadm keeps":           {"etc/innocent", "kubernetes", "/etc/innocent/admin.conf", "kubeadm's"},
		"into the runtime's state, deeper":  {"srv", "var/lib", "/srv/containerd/x", "container runtime"},
		"a link that leads nowhere":         {"etc/gone", "nothing", "/etc/gone/x", "no such file"},
		"without any link, a kept path":     {"etc/other", "kubernetes", "/etc/kubernetes/x", "kubeadm's"},
		"without any link, out of the path": {"etc/other", "kubernetes", "/etc/../etc/x", "clean"},
	} {
		t.Run(name, func(t *testing.T) {
			f := FS{Root: t.TempDir(), Refuse: model.ProtectedPath}
			for _, d := range []string{"etc/kubernetes", "var/lib/containerd"} {
				if err := os.MkdirAll(filepath.Join(f.Root, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(c.to, filepath.Join(f.Root, c.link)); err != nil {
				t.Fatal(err)
			}
			err := f.Write(c.path, []byte("x"), 0o644, os.Getuid(), os.Getgid())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %q", err, c.says)
			}
			if left, _ := os.ReadDir(outside); len(left) != 0 {
				t.Fatalf("written outside: %v", left)
			}
		})
	}
	f := FS{Root: t.TempDir()}
	if err := f.Write("/etc/file", []byte("x"), 0o644, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(f.Root, "etc/link")); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Inspect("/etc/link"); err != nil || s.Link != "file" || s.Regular {
		t.Fatalf("%+v %v", s, err)
	}
}

func TestWhatIsTooLargeIsNotKept(t *testing.T) {
	f := FS{Root: t.TempDir()}
	if err := os.Truncate(mustMake(t, filepath.Join(f.Root, "big")), maxRead+1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Read("/big"); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}

func mustMake(t *testing.T, path string) string {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDigestsAreOfTheFileThatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var d Digests
	for _, text := range []string{"one", "two", "three"} {
		if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := d.DigestOf(path); err != nil || got != model.DigestOf([]byte(text)) {
				t.Fatalf("%s %v", got, err)
			}
		}
	}
}
