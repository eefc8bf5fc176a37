package agent

import (
	"context"
	"os"
	"slices"
	"sort"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"

	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// spaceChecker compares the room that missing content needs with the room of the node's
// file systems. The bundle loop and the image loop ask it.
type spaceChecker struct {
	*shared
	// place is where the program of a payload is; nil knows no place.
	place   func(ctx context.Context, payload string) string
	digests nodefiles.Digests
	// eviction is what the kubelet wants left free; tests want nothing left free of
	// the disk that they happen to run on.
	eviction func() kube.Eviction
	// booted is a file that hosts have which boot OS images.
	booted string
	// roomAt is the room of the file system of a path in tests; nil: the machine's.
	roomAt func(path string) (fsutil.Room, error)
}

// rooms returns the node's file systems, without the space that the kubelet keeps free by
// evicting pods or removing images.
func (sc *spaceChecker) rooms(ctx context.Context) []pin.Room {
	ev := sc.eviction()
	var out []pin.Room
	add := func(name, path, files string, thresholds ...string) {
		r, err := sc.roomOf(path)
		if err != nil {
			sc.log.Warn("failed to read free space of a file system", "path", path, "error", err)
			return
		}
		out = append(out, pin.Room{Name: name, ID: r.ID, Free: r.Free - reserve(r.Total, thresholds...), Total: r.Total,
			Files: r.FreeFiles - reserve(r.Files, files), FilesKnown: r.Files > 0})
	}
	add(pin.StateFS, sc.conf.StateDir, ev.NodeFiles, ev.NodeFS)
	if root, err := sc.runtime.Root(ctx); err == nil {
		// Loaded images must not trigger the removal of other images.
		add(pin.ImagesFS, root, ev.ImageFiles, ev.ImageFS, ev.Collect)
	}
	if dir := sc.programsDir(ctx); dir != "" {
		add(pin.ProgramsFS, dir, "") // the kubelet has no threshold for it
	}
	return out
}

// stateRoom returns how many bytes are free for the agent's state, without those that content of the
// desired state still takes.
func (sc *spaceChecker) stateRoom(ctx context.Context, w *desired.State) int64 {
	need, err := sc.needs(ctx, w)
	if err != nil {
		return 0
	}
	for _, r := range sc.rooms(ctx) {
		if r.Name == pin.StateFS {
			return r.Free - need[pin.StateFS]
		}
	}
	return 0
}

// roomOf returns the room of the file system of a path: the machine's, or that of a test.
func (sc *spaceChecker) roomOf(path string) (fsutil.Room, error) {
	if sc.roomAt == nil {
		return fsutil.RoomAt(path)
	}
	return sc.roomAt(path)
}

// reserve returns the largest of some thresholds of a total; one that cannot be parsed counts
// as a tenth.
func reserve(total int64, thresholds ...string) int64 {
	most := int64(0)
	for _, t := range thresholds {
		n, err := kube.Bytes(t, total)
		if err != nil {
			n = total / 10
		}
		most = max(most, n)
	}
	return most
}

// needs returns how much room the missing content takes, by file system.
func (sc *spaceChecker) needs(ctx context.Context, w *desired.State) (map[string]int64, error) {
	have, err := sc.runtime.Present(ctx)
	if err != nil {
		return nil, err
	}
	toLoad := map[string]bool{}
	for _, i := range pin.Decide(w.Pins.Images, have, nil).Load {
		toLoad[pin.Key(i)] = true
		if base := sc.baseOf(i); base != "" && !slices.ContainsFunc(have, func(p pin.RuntimeImage) bool { return slices.Contains(p.Digests, pin.Repository(base)+"@"+i.Base) }) {
			toLoad[base+"@"+i.Base] = true // the overlay itself is small
		}
	}
	out := map[string]int64{pin.StateFS: 0, pin.ImagesFS: 0}
	store, _ := sc.pinsToStore(ctx, w)
	for _, d := range w.Bundles() {
		s := sc.library.Shelf(d)
		if s == nil {
			continue
		}
		x := s.Wanted(w.Pins, platform())
		mine := s.Wanted(store, platform())
		out[pin.StateFS] += mine.Bytes - s.BytesHere(mine.Blobs)
		blobs := map[int]bool{}
		for _, img := range x.Images {
			if !toLoad[img.Name+"@"+img.Digest] {
				continue
			}
			// The runtime keeps the blobs and their unpacked files, each once. All
			// blobs of a bundle have 2^50 bytes at most, unpacked too: no sum overflows.
			for _, b := range img.Blobs {
				if !blobs[b] {
					blobs[b] = true
					out[pin.ImagesFS] += s.Bundle().Metadata.Blobs[b].Size + s.Bundle().Metadata.Blobs[b].UnpackedSize
				}
			}
		}
	}
	sc.programNeeds(ctx, w, out)
	return out, nil
}

// checkSpace returns blockers if the missing content does not fit. Loops call it before they
// copy or load. If the runtime is unavailable, the need is unknown, which blocks too.
func (sc *spaceChecker) checkSpace(ctx context.Context, w *desired.State) []model.Blocker {
	need, err := sc.needs(ctx, w)
	if err != nil {
		return []model.Blocker{{Reason: v1alpha1.ReasonLoading, Waiting: true, Message: err.Error(), Object: "Node/" + sc.conf.Node}}
	}
	rooms := sc.rooms(ctx)
	sc.report(need, rooms)
	return pin.CheckSpace(sc.conf.Node, need, rooms)
}

// checkFetch returns blockers if the images from registries do not fit next to those of bundles:
// a runtime that pulls until the disk is full makes the kubelet evict pods. It blocks only these
// pulls.
func (sc *spaceChecker) checkFetch(ctx context.Context, w *desired.State) []model.Blocker {
	have, err := sc.runtime.Present(ctx)
	if err != nil {
		return nil // checkSpace reported it
	}
	fetch := int64(0)
	for _, i := range pin.Decide(w.Pins.Images, have, nil).Load {
		if i.Registry && i.Bundle == "" && !i.Kubelet {
			fetch += pin.SpaceToFetch(i.Size)
		}
	}
	if fetch == 0 {
		return nil
	}
	need, err := sc.needs(ctx, w)
	if err != nil {
		return nil
	}
	need[pin.ImagesFS] += fetch
	return pin.CheckSpace(sc.conf.Node, need, sc.rooms(ctx))
}

// bootRooms returns the file systems from which a host boots OS images. refit's own content
// goes elsewhere; the gate compares them with images.
func (sc *spaceChecker) bootRooms() (out []pin.Room) {
	if sc.booted == "" {
		return nil
	}
	if _, err := os.Stat(sc.booted); err != nil {
		return nil
	}
	for name, path := range map[string]string{pin.BootFS: "/boot", pin.SysrootFS: "/sysroot"} {
		if r, err := sc.roomOf(path); err == nil { // an image may have no /boot of its own
			out = append(out, pin.Room{Name: name, ID: r.ID, Free: r.Free, Total: r.Total})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func (sc *spaceChecker) report(need map[string]int64, rooms []pin.Room) {
	rooms = append(slices.Clone(rooms), sc.bootRooms()...)
	fs := make([]v1alpha1.FileSystem, 0, len(rooms))
	for _, r := range rooms {
		fs = append(fs, v1alpha1.FileSystem{Name: r.Name, ID: r.ID, FreeBytes: max(0, r.Free), TotalBytes: r.Total})
	}
	sc.update(func(s *state) {
		s.fileSystems = fs
		s.pins.NeededBytes = need
	})
}

// measure refreshes the room in the status.
func (sc *spaceChecker) measure(ctx context.Context, w *desired.State) {
	if need, err := sc.needs(ctx, w); err == nil {
		sc.report(need, sc.rooms(ctx))
	}
}
