package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// onMedium copies a bundle to an image of an ordinary stick, next to another file.
func onMedium(t *testing.T, bundlePath string) string {
	t.Helper()
	mkfs := "/usr/sbin/mke2fs"
	if found, err := exec.LookPath("mke2fs"); err == nil {
		mkfs = found
	}
	if _, err := os.Stat(mkfs); err != nil {
		t.Skip("mke2fs is not installed: make deps")
	}
	dir, medium := t.TempDir(), filepath.Join(t.TempDir(), "stick")
	if bundlePath != "" {
		raw, err := os.ReadFile(bundlePath)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "release"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-t", "ext4", "-q", "-F", "-L", "STICK", "-d", dir, medium, "8M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return medium
}

// A file copied to an ordinary stick is enough: the node with the stick copies, loads and pins,
// and its peer gets everything from it.
func TestFromAnOrdinaryMediumToAPeer(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	medium := onMedium(t, path)
	a, b := newTestNode(t, "n1", 17990, medium), newTestNode(t, "n2", 17991)
	introduce(a, b)
	approve(t, h, everything(h), a, b)
	s := a.reported("held", held)
	if len(s.Media) != 1 || s.Media[0].Device != medium+"#release" || s.Media[0].State != v1alpha1.MediumCopied {
		t.Errorf("%+v", s.Media)
	}
	if s := b.reported("held by the peer", held); s.Pins.BytesFromPeers == 0 || len(s.Media) != 0 {
		t.Errorf("%+v %+v", s.Pins, s.Media)
	}
}

// The wrong stick says so.
func TestAMediumWithoutABundleIsInTheStatus(t *testing.T) {
	n := newTestNode(t, "n1", 17992, onMedium(t, ""))
	s := n.reported("it says what it saw", func(s *v1alpha1.NodeUpdateStatus) bool { return len(s.Media) == 1 })
	if m := s.Media[0]; m.State != v1alpha1.MediumUnreadable || !strings.Contains(m.Message, "no bundle found on ") || !strings.Contains(m.Message, `checked 1 file in ext4 "STICK"`) {
		t.Errorf("%+v", m)
	}
}
