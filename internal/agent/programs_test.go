package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// The room that replacing the programs takes is counted: the new one where
// the old is, and the copy of the old one; until it is replaced.
func TestRoomForProgramsIsCounted(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	kubelet := h.PayloadByName("kubelet", platform())
	if kubelet == nil {
		t.Skip("the sample bundle has no kubelet for this platform")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "kubelet")
	old := make([]byte, 12345)
	if err := os.WriteFile(program, old, 0o755); err != nil {
		t.Fatal(err)
	}
	n := newTestNode(t, "n1", 17951, path)
	n.stop()
	n.place = func(_ context.Context, payload string) string {
		if payload == "kubelet" {
			return program
		}
		return ""
	}
	n.start()
	approve(t, h, everything(h), n)
	s := n.reported("held, and the room is known", func(s *v1alpha1.NodeUpdateStatus) bool {
		return held(s) && s.Pins.NeededBytes["programs"] > 0 && s.Pins.BytesDone == s.Pins.BytesTotal
	})
	if got, want := s.Pins.NeededBytes, kubelet.Size; got["programs"] != want || got["state"] != int64(len(old)) {
		t.Fatalf("needed %v, the new kubelet has %d bytes and the old %d", got, want, len(old))
	}
	found := false
	for _, fs := range s.FileSystems {
		found = found || fs.Name == "programs" && fs.TotalBytes > 0 && fs.ID != ""
	}
	if !found {
		t.Fatalf("the file system of the programs is not reported: %+v", s.FileSystems)
	}
	shelf := n.agent.library.Shelf(h.Digest)
	if b := shelf.ReadSmall(kubelet.Digest); b == nil {
		t.Fatal("the payload cannot be read")
	} else if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	wake(n.agent.wakeImages)
	n.reported("nothing more is needed once it is replaced", func(s *v1alpha1.NodeUpdateStatus) bool {
		return s.Pins.NeededBytes["programs"] == 0 && s.Pins.NeededBytes["state"] == 0
	})
}
