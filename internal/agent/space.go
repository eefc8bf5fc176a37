package agent

import (
	"context"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"

	"github.com/refit-dev/refit/internal/pipeline/pin"
)

func kubeletEviction() kube.Eviction {
	return kube.ReadEviction(kube.Paths{}.KubeletConfig())
}

// rooms are the node's file systems, less what the kubelet wants left free before
// it evicts pods, or collects images.
func (a *Agent) rooms(ctx context.Context) []pin.Room {
	ev := a.eviction()
	var out []pin.Room
	add := func(name, path, files string, thresholds ...string) {
		r, err := a.room(path)
		if err != nil {
			a.log.Warn("failed to read free space of a file system", "path", path, "error", err)
			return
		}
		out = append(out, pin.Room{Name: name, ID: r.ID, Free: r.Free - reserve(r.Total, thresholds...), Total: r.Total,
			Files: r.FreeFiles - reserve(r.Files, files), FilesKnown: r.Files > 0})
	}
	add(pin.StateFS, a.conf.StateDir, ev.NodeFiles, ev.NodeFS)
	if root, err := a.runtime.Root(ctx); err == nil {
		// What is loaded must not set off the collection of other images.
		add(pin.ImagesFS, root, ev.ImageFiles, ev.ImageFS, ev.Collect)
	}
	if dir := a.programsDir(ctx); dir != "" {
		add(pin.ProgramsFS, dir, "") // the kubelet evicts nobody because of it
	}
	return out
}

// room of the file system of a path: the machine's, or that of a test.
func (a *Agent) room(path string) (fsutil.Room, error) {
	if a.roomAt == nil {
		return fsutil.RoomAt(path)
	}
	return a.roomAt(path)
}

// reserve is the largest of some thresholds for a total; one that cannot be read
// counts as a tenth.
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

// needs is how much room what is still missing takes, by file system.
func (a *Agent) needs(ctx context.Context, w *desired.State) (map[string]int64, error) {
	have, err := a.runtime.Present(ctx)
	if err != nil {
		return nil, err
	}
	toLoad := map[string]bool{}
	for _, i := range pin.Decide(w.Hold.Images, have, nil).Load {
		toLoad[pin.Key(i)] = true
		if base := a.baseOf(i); base != "" && !slices.ContainsFunc(have, func(p pin.Present) bool { return slices.Contains(p.Digests, pin.Repository(base)+"@"+i.Base) }) {
			toLoad[base+"@"+i.Base] = true // what is added to it is nothing beside it
		}
	}
	out := map[string]int64{pin.StateFS: 0, pin.ImagesFS: 0}
	store, _ := a.inStore(ctx, w)
	for _, d := range w.Bundles() {
		s := a.library.Shelf(d)
		if s == nil {
			continue
		}
		x := s.Wanted(w.Hold, platform())
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
	a.programNeeds(ctx, w, out)
	return out, nil
}

// checkSpace says whether what is missing fits. It is asked before anything is
// copied or loaded; if the runtime is away nothing can be said yet.
func (a *Agent) checkSpace(ctx context.Context, w *desired.State) []model.Verdict {
	need, err := a.needs(ctx, w)
	if err != nil {
		return []model.Verdict{{Reason: v1alpha1.ReasonLoading, Waiting: true, Message: err.Error(), Object: "Node/" + a.conf.Node}}
	}
	rooms := a.rooms(ctx)
	a.setSpace(need, rooms)
	return pin.CheckSpace(a.conf.Node, need, rooms)
}

// checkFetch says whether what is to be fetched from registries fits beside what
// bundles bring: a runtime that is left to fetch fills the disk, and then the
// kubelet evicts. It holds up nothing else.
func (a *Agent) checkFetch(ctx context.Context, w *desired.State) []model.Verdict {
	have, err := a.runtime.Present(ctx)
	if err != nil {
		return nil // said already
	}
	fetch := int64(0)
	for _, i := range pin.Decide(w.Hold.Images, have, nil).Load {
		if i.Registry && i.Bundle == "" && !i.Kubelet {
			fetch += pin.FetchNeed(i.Size)
		}
	}
	if fetch == 0 {
		return nil
	}
	need, err := a.needs(ctx, w)
	if err != nil {
		return nil
	}
	need[pin.ImagesFS] += fetch
	return pin.CheckSpace(a.conf.Node, need, a.rooms(ctx))
}

func (a *Agent) setSpace(need map[string]int64, rooms []pin.Room) {
	fs := make([]v1alpha1.FileSystem, 0, len(rooms))
	for _, r := range rooms {
		fs = append(fs, v1alpha1.FileSystem{Name: r.Name, ID: r.ID, FreeBytes: max(0, r.Free), TotalBytes: r.Total})
	}
	a.update(func(s *state) {
		s.rooms = fs
		s.holding.NeededBytes = need
	})
}

// measure refreshes what the status says of the room.
func (a *Agent) measure(ctx context.Context, w *desired.State) {
	if need, err := a.needs(ctx, w); err == nil {
		a.setSpace(need, a.rooms(ctx))
	}
}
