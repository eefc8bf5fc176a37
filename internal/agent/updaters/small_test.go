package updaters

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

// Updaters write with Swap (kubeadm, kubelet, programs), BackUp and Restore (kubeadm's
// configuration) and OwnFile (drop-ins, configuration). On a full disk the part of the
// node is the old one or the new one, and the old one can be restored.
func TestPartsAreReplacedOnSmallDisks(t *testing.T) {
	older, newer := bytes.Repeat([]byte("o"), 100_000), bytes.Repeat([]byte("n"), 200_000)
	payload := filepath.Join(t.TempDir(), "payload")
	if err := fsutil.WriteFile(payload, newer, 0o755); err != nil {
		t.Fatal(err)
	}
	digest, err := fsutil.Digest(payload)
	if err != nil {
		t.Fatal(err)
	}
	task := func(dir string) Task {
		return Task{UID: "u", Attempt: 1, Step: v1alpha1.UpdateStep{ID: "kubelet"}, Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
			Payload: func(string) (Payload, error) { return Payload{Path: payload, Digest: digest}, nil }}
	}
	part := func(dir string) string { return filepath.Join(dir, "part") }
	own := func(dir string) OwnFile { return OwnFile{FS: nodefiles.FS{Root: dir}, Path: "/part"} }
	for name, ways := range map[string]struct{ there, back func(dir string) error }{
		"Swap": {
			func(dir string) error { _, err := Swap(task(dir), "kubelet", part(dir)); return err },
			func(dir string) error { _, err := Restore(task(dir), "kubelet", part(dir)); return err }},
		"OwnFile": {
			func(dir string) error { return own(dir).Write(task(dir), newer, 0o644) },
			func(dir string) error { return own(dir).Restore(task(dir)) }},
	} {
		is := func(want []byte) func(dir string) bool {
			return func(dir string) bool { b, _ := os.ReadFile(part(dir)); return bytes.Equal(b, want) }
		}
		w := disktest.Writer{
			Torn: func(dir string) string {
				if !is(older)(dir) && !is(newer)(dir) {
					return "part"
				}
				return ""
			},
		}
		before := func(t *testing.T, dir string) {
			t.Helper()
			if err := fsutil.WriteFile(part(dir), older, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(name+" there", func(t *testing.T) {
			w.Write, w.Whole, w.Kept = ways.there, is(newer), []string{"kubelet", "kubelet.before.json"} // for Restore
			w.Try(t, before)
		})
		t.Run(name+" back", func(t *testing.T) {
			w.Write, w.Whole = ways.back, is(older)
			w.Try(t, func(t *testing.T, dir string) {
				t.Helper()
				before(t, dir)
				if err := ways.there(dir); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
