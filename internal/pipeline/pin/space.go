package pin

import (
	"fmt"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Names of a node's file systems.
const (
	StateFS    = "state"    // the agent's own store
	ImagesFS   = "images"   // the runtime's
	ProgramsFS = "programs" // where the kubelet's program is
	BootFS     = "boot"     // where a host that boots OS images has its kernels
	SysrootFS  = "sysroot"  // where it has its images
)

// Room is a file system of the node.
type Room struct {
	// Name is StateFS, ImagesFS or ProgramsFS.
	Name string
	// ID tells file systems apart.
	ID string
	// Free is what may be used before the kubelet would evict pods, or collect
	// images, in bytes.
	Free int64
	// Total size in bytes.
	Total int64
	// Files that may still be made before the kubelet would evict, if FilesKnown: not
	// every file system has a limit.
	Files      int64
	FilesKnown bool
}

// bytesPerFile is a lower bound for the average file size of images, because a bundle does
// not count its files. File systems with a limit have a file for every 16 KiB as a rule,
// so this stops only where they are nearly spent.
const bytesPerFile = 64 << 10

// checkFiles compares about how many files the images have with what may be made.
func checkFiles(node string, need map[string]int64, rooms []Room) []model.Blocker {
	for _, r := range rooms {
		files := need[r.Name] / bytesPerFile
		if r.Name != ImagesFS || !r.FilesKnown || files <= r.Files || need[r.Name] <= 0 {
			continue
		}
		return []model.Blocker{{
			Reason:  reasonInsufficientSpace,
			Message: fmt.Sprintf("node %s needs about %d files (inodes) for images, %d may be made above the kubelet's thresholds", node, files, max(0, r.Files)),
			Fix:     "remove small files from that file system, or make it anew with more inodes; do not delete images that refit pinned",
			Object:  "Node/" + node,
		}}
	}
	return nil
}

// SpaceToFetch is about how much room an image takes that is fetched with size bytes:
// its layers as they came, and their files, which are about three times as large.
func SpaceToFetch(size int64) int64 { return 4 * max(0, size) }

// CheckSpace compares what is needed, by file system name, with what is free.
// Names on one file system share its room.
func CheckSpace(node string, need map[string]int64, rooms []Room) []model.Blocker {
	type place struct {
		names []string
		need  int64
		free  int64
	}
	byID := map[string]*place{}
	for _, r := range rooms {
		p := byID[r.ID]
		if p == nil {
			p = &place{free: r.Free}
			byID[r.ID] = p
		}
		p.names = append(p.names, r.Name)
		p.need += need[r.Name]
		p.free = min(p.free, r.Free)
	}
	ids := make([]string, 0, len(byID))
	for id := range byID {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	var out []model.Blocker
	for _, id := range ids {
		p := byID[id]
		if p.need <= 0 || p.need <= p.free {
			continue
		}
		out = append(out, model.Blocker{
			Reason: reasonInsufficientSpace,
			Message: fmt.Sprintf("node %s needs %d bytes for %s, %d bytes are free above the kubelet's thresholds",
				node, p.need, strings.Join(p.names, " and "), max(0, p.free)),
			Fix:    "make room on the node's disk; do not delete images that refit pinned",
			Object: "Node/" + node,
		})
	}
	return append(out, checkFiles(node, need, rooms)...)
}
