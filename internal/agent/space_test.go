package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// another is a bundle with one image of its own.
func another(name string) bundletest.Spec {
	s := bundletest.Tiny()
	s.Name = name
	s.Images = []bundletest.Image{{Name: "registry.example/" + name + ":1", Group: bundle.GroupWorkload, Layers: [][]byte{[]byte(strings.Repeat(name+" layer ", 90))}}}
	s.Payloads = nil
	return s
}

// sizeOf is what the runtime and the store take of a bundle, as the node plans it.
func sizeOf(h *bundle.Header) (total int64) {
	for _, i := range h.Metadata.Images {
		total += i.UnpackedSize
		for _, b := range i.Blobs {
			total += h.Metadata.Blobs[b].Size
		}
	}
	for _, b := range h.Metadata.Blobs {
		total += b.Size
	}
	return total
}

// Each of two more sets fits, both together do not. The node is blocked before a byte of either is
// copied, and reports needed and free bytes. Pinned images stay pinned. With more room the agent
// continues by itself.
func TestSetsAreSummedBeforeAByteMoves(t *testing.T) {
	path, first := mediumWith(t, bundletest.Tiny(), 1)
	path2, second := mediumWith(t, another("second"), 1)
	path3, third := mediumWith(t, another("third"), 1)
	n := newTestNode(t, "n1", 17981, path, path2, path3)
	var free atomic.Int64
	free.Store(1 << 40)
	n.room = func(string) (fsutil.Room, error) {
		return fsutil.Room{ID: "8:1", Free: free.Load(), Total: 1 << 40}, nil
	}
	n.stop()
	n.start()
	approve(t, first, everything(first), n)
	n.reported("the first set is held", held)
	list, _ := n.agent.library.Blobs().List()
	was := len(list)

	free.Store(max(sizeOf(second), sizeOf(third)))
	all := everything(first)
	all.Images = slices.Concat(all.Images, everything(second).Images, everything(third).Images)
	name := n.api.content(t, v1alpha1.ContentPins, all)
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Bundles, s.Pins = []v1alpha1.ApprovedBundle{{Digest: first.Digest}, {Digest: second.Digest}, {Digest: third.Digest}}, name
	})
	s := n.reported("the missing room is reported", func(s *v1alpha1.NodeUpdateStatus) bool {
		status, reason := condition(s, v1alpha1.ConditionStalled)
		return status == "True" && reason == v1alpha1.ReasonInsufficientSpace
	})
	if !strings.Contains(s.Message, "node n1 needs ") || s.Pins.NeededBytes["images"] == 0 || len(s.FileSystems) == 0 || s.FileSystems[0].FreeBytes != free.Load() {
		t.Errorf("the plan is shown in bytes: %q %+v %+v", s.Message, s.Pins, s.FileSystems)
	}
	if list, _ := n.agent.library.Blobs().List(); len(list) != was || n.runtime.count() != len(first.Metadata.Images) {
		t.Errorf("something was copied or loaded: %d blobs, before %d; %d images", len(list), was, n.runtime.count())
	}
	for _, i := range first.Metadata.Images {
		if !n.runtime.has(i.Name) {
			t.Errorf("what was held is gone: %s", i.Name)
		}
	}
	free.Store(1 << 40)
	s = n.reported("with room all are held", held)
	if int(s.Pins.ImagesPinned) != len(all.Images) {
		t.Errorf("%+v", s.Pins)
	}
}

// A host that boots OS images reports the room of /boot and /sysroot, and nothing of refit's is
// measured against it.
func TestBootRooms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mark := filepath.Join(dir, "ostree-booted")
	s := &shared{conf: agentconfig.Config{StateDir: dir}, runtime: &fakeRuntime{dir: dir}, log: slog.New(slog.DiscardHandler)}
	a := &spaceChecker{shared: s, booted: mark, eviction: func() kube.Eviction { return kube.Eviction{} },
		roomAt: func(path string) (fsutil.Room, error) {
			if path == "/boot" {
				return fsutil.Room{ID: "8:1", Free: 40 << 20, Total: 1 << 30}, nil
			}
			return fsutil.Room{ID: "8:2", Free: 9 << 30, Total: 20 << 30}, nil
		}}
	names := func() (out []string) {
		a.report(map[string]int64{}, a.rooms(t.Context()))
		for _, f := range s.state.fileSystems {
			out = append(out, fmt.Sprintf("%s %d", f.Name, f.FreeBytes>>20))
		}
		return out
	}
	if got := names(); len(got) != 2 {
		t.Errorf("a host of packages reports %q", got)
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := names(); len(got) != 4 || got[2] != "boot 40" || got[3] != "sysroot 9216" {
		t.Errorf("%q", got)
	}
}

// What may be made of files leaves free what the kubelet wants.
func TestFilesLeaveTheKubeletsThreshold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &spaceChecker{shared: &shared{conf: agentconfig.Config{StateDir: dir}, runtime: &fakeRuntime{dir: dir}, log: slog.New(slog.DiscardHandler)},
		eviction: func() kube.Eviction { return kube.Eviction{ImageFiles: "5%"} },
		roomAt:   func(string) (fsutil.Room, error) { return fsutil.Room{ID: "8:1", FreeFiles: 100, Files: 1000}, nil }}
	rooms := a.rooms(t.Context())
	i := slices.IndexFunc(rooms, func(r pin.Room) bool { return r.Name == "images" })
	if i < 0 || rooms[i].Files != 50 || !rooms[i].FilesKnown {
		t.Errorf("%+v", rooms)
	}
}
