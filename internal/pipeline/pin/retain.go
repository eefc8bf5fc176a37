package pin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Use is what an approved bundle is on the nodes for.
type Use string

const (
	// UseRuns means: it is what the cluster, or one of its nodes, runs.
	UseRuns Use = "Runs"
	// UseUpdate means: an update that is not complete names it.
	UseUpdate Use = "Update"
	// UseRollback means: it is one of the older releases that nodes keep for a rollback.
	UseRollback Use = "Rollback"
	// UseHeld means: an administrator holds it.
	UseHeld Use = "Held"
	// UseWaits means: it was approved, and no rule says that its time is over.
	UseWaits Use = "Waits"
	// UseReleased means: later releases took its place, and nodes need not hold it.
	UseReleased Use = "Released"
)

// DefaultReleases is how many older releases nodes keep where no pool sets a number.
const DefaultReleases = 1

// ApprovedBundle is an approved bundle as the rule of releases sees it.
type ApprovedBundle struct {
	Digest string
	// Product is the name in its metadata: releases of one product take each other's
	// place. Empty while unknown; such a bundle stays.
	Product string
	// Approved is when it was approved.
	Approved time.Time
	// FirstDone and LastDone are the ends of the first and the last complete update of the
	// whole cluster to it; zero without one.
	FirstDone, LastDone time.Time
	// SomeDone is the end of the last complete update of some nodes to it; zero without one.
	SomeDone time.Time
	// OlderThan are the digests of the bundles of its product with a later version.
	OlderThan map[string]bool
	// Kubernetes is the version of its node binaries, empty without any.
	Kubernetes string
	// Released: it was released before. A node that comes back at its version does not make
	// all nodes hold it again.
	Released bool
	// Update is the name of an update to it that is not complete, Node a node that it
	// changes now, HeldBy the object by which an administrator holds it.
	Update, Node, HeldBy string
}

// Retention is why nodes hold a bundle, or that they need not.
type Retention struct {
	Use Use
	// Message is the reason, for people.
	Message string
}

// Retain decides for every approved bundle whether nodes hold it. For each product, the
// release of the last complete update runs. The last keep older releases stay for a rollback,
// and those before them are released. A doubtful bundle stays. nodes has a node for every
// Kubernetes version that runs.
func Retain(all []ApprovedBundle, nodes map[string]string, keep int) map[string]Retention {
	out := map[string]Retention{}
	running := runningReleases(all)
	older := map[string][]*ApprovedBundle{}
	for i := range all {
		b := &all[i]
		r := running[b.Product]
		out[b.Digest] = neededNow(b, r, nodes)
		if r != nil && isOlder(b, r) {
			older[b.Product] = append(older[b.Product], b)
		}
	}
	for product, line := range older {
		last := lastReleases(line, keep)
		for _, b := range line {
			if out[b.Digest].Use == UseWaits { // else it stays for another reason
				out[b.Digest] = fateOf(last[b.Digest], keep, running[product])
			}
		}
	}
	return out
}

// runningReleases has the release of the last complete update for each product.
func runningReleases(all []ApprovedBundle) map[string]*ApprovedBundle {
	running := map[string]*ApprovedBundle{}
	for i := range all {
		b := &all[i]
		if r := running[b.Product]; b.Product != "" && !b.LastDone.IsZero() && (r == nil || b.LastDone.After(r.LastDone)) {
			running[b.Product] = b
		}
	}
	return running
}

// lastReleases are the last keep releases of the whole cluster, and the last keep that any
// node ran: both are targets of a rollback.
func lastReleases(line []*ApprovedBundle, keep int) map[string]bool {
	out := map[string]bool{}
	for _, at := range []func(*ApprovedBundle) time.Time{(*ApprovedBundle).wholeRun, (*ApprovedBundle).lastRun} {
		slices.SortFunc(line, func(a, b *ApprovedBundle) int { return laterFirst(a, b, at) })
		for _, b := range line[:min(keep, len(line))] {
			out[b.Digest] = true
		}
	}
	return out
}

// neededNow is why a bundle of any age stays; UseWaits if there is no such reason.
func neededNow(b, running *ApprovedBundle, nodes map[string]string) Retention {
	lags := laggingNode(b, running, nodes)
	switch {
	case b.Update != "":
		return Retention{UseUpdate, "ClusterUpdate " + b.Update + " to it is not complete"}
	case b == running:
		return Retention{UseRuns, "the cluster runs it"}
	case b.Node != "":
		return Retention{UseRuns, "node " + b.Node + " changes to it"}
	case lags != "":
		return Retention{UseRuns, "node " + lags + " runs Kubernetes " + b.Kubernetes}
	case !b.SomeDone.IsZero() && (running == nil || b.SomeDone.After(running.LastDone)):
		return Retention{UseRuns, "some nodes were updated to it, and no later update of the whole cluster is complete"}
	case b.HeldBy != "":
		return Retention{UseHeld, b.HeldBy + " holds it"}
	}
	return Retention{UseWaits, whyWaits(b, running)}
}

// laggingNode is a node that runs the Kubernetes version of a bundle, and not that of the release
// that runs. A version that both have does not tell them apart.
func laggingNode(b, running *ApprovedBundle, nodes map[string]string) string {
	if b.Released || b.Kubernetes == "" || running == nil || b.Kubernetes == running.Kubernetes {
		return ""
	}
	return nodes[b.Kubernetes]
}

// whyWaits is why no rule says that the time of a bundle is over.
func whyWaits(b, running *ApprovedBundle) string {
	switch {
	case b.Product == "":
		return "its metadata was not read yet"
	case running == nil:
		return "no update of the whole cluster to a bundle of this name is complete"
	case b.Approved.After(running.LastDone):
		return "it was approved after the last update"
	}
	return "the cluster was not updated to it since"
}

// isOlder reports whether a bundle is an earlier release than the one that runs: it ran
// before that one did for the first time, or has an older version and never ran. A release
// that the cluster was rolled back from is not older.
func isOlder(b, running *ApprovedBundle) bool {
	switch {
	case b == running || b.Approved.After(running.LastDone) || b.SomeDone.After(running.LastDone):
		return false
	case !b.FirstDone.IsZero():
		return b.FirstDone.Before(running.FirstDone)
	}
	return b.OlderThan[running.Digest]
}

// laterFirst sorts by a time of an update, the last one first. Releases without one come last,
// those with a later version first.
func laterFirst(a, b *ApprovedBundle, at func(*ApprovedBundle) time.Time) int {
	if c := at(b).Compare(at(a)); c != 0 {
		return c
	}
	switch {
	case a.OlderThan[b.Digest]:
		return 1
	case b.OlderThan[a.Digest]:
		return -1
	}
	return cmp.Compare(a.Digest, b.Digest)
}

func (b *ApprovedBundle) wholeRun() time.Time { return b.LastDone }

func (b *ApprovedBundle) lastRun() time.Time {
	if b.SomeDone.After(b.LastDone) {
		return b.SomeDone
	}
	return b.LastDone
}

// fateOf an older release; last: it is one of the last keep.
func fateOf(last bool, keep int, running *ApprovedBundle) Retention {
	if last {
		return Retention{UseRollback, "nodes keep it for a rollback"}
	}
	return Retention{UseReleased, fmt.Sprintf("a later release runs since %s, and nodes keep %d older for a rollback", running.LastDone.UTC().Format(time.RFC3339), keep)}
}

// Freed is what a node frees if it no longer holds a bundle.
type Freed struct {
	// Images that no other bundle has under their name and digest.
	Images int
	// Bytes of blobs that no other bundle needs. Layers count as copies, and compressed
	// and unpacked in the runtime.
	Bytes int64
}

// Frees returns at most what a node frees if it no longer holds a bundle while it holds
// others.
func Frees(h *bundle.Header, others []*bundle.Header, n Needs) Freed {
	stays, needed := map[string]bool{}, map[string]bool{}
	for _, o := range others {
		held := FromBundle(o, n)
		for _, i := range held.Images {
			stays[i.Name+"@"+i.Digest] = true
		}
		for _, b := range SelectNeeded(o, held, n.Platform, nil).Blobs {
			needed[o.Metadata.Blobs[b].Digest] = true
		}
	}
	var f Freed
	want := SelectNeeded(h, FromBundle(h, n), n.Platform, nil)
	inRuntime := map[int]bool{}
	for _, img := range want.Images {
		if !stays[img.Name+"@"+img.Digest] {
			f.Images++
		}
		for _, b := range img.Blobs {
			inRuntime[b] = true
		}
	}
	for _, i := range want.Blobs {
		b := h.Metadata.Blobs[i]
		if needed[b.Digest] {
			continue
		}
		f.Bytes += b.Size
		if inRuntime[i] {
			f.Bytes += b.Size + b.UnpackedSize
		}
	}
	return f
}
