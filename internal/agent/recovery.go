package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/text"
)

// Reasons of events about a node.
const (
	eventRestored      = "ImageRestored"
	eventPullsRepaired = "PullRecordsMended"
	eventReplaced      = v1alpha1.ReasonStoreReplaced
	eventDrill         = "Drill"
	eventRemoved       = "ImagesRemoved"
)

// followUp reports restored images. Once all images are pinned, it repairs pull records and
// wakes the maintenance loop.
func (l *imageLoop) followUp(ctx context.Context, w *desired.State, r imagekeeper.Result, busy bool) {
	l.reportRestored(ctx, r.Restored)
	if !r.Complete() {
		return
	}
	l.arrivals.Forget() // from now on, an image that is lost and restored comes from this node's own copy
	if !busy {
		l.pulls.run(ctx, w)
		wake(l.wakeMaintenance)
	}
}

// maxEvents is how many restored images get an event each; one more event counts the rest.
const maxEvents = 5

// reportRestored emits events about images that the runtime had lost, with the source of each.
func (l *imageLoop) reportRestored(ctx context.Context, all []imagekeeper.Restored) {
	for i, r := range all {
		if i == maxEvents {
			l.emitEvent(ctx, eventRestored, fmt.Sprintf("restored %s more that the container runtime had lost", text.Count(len(all)-i, "image")))
			return
		}
		l.emitEvent(ctx, eventRestored, fmt.Sprintf("restored and pinned image %s, which the container runtime had lost, %s", r.Image.Name, l.restoredFrom(r)))
	}
}

// restoredFrom returns the source of a restored image. Blobs that arrived since the last
// complete pass were missing too; they may have arrived before the loss was seen.
func (l *imageLoop) restoredFrom(r imagekeeper.Restored) string {
	const gone = ": this node's own copy was lost too"
	came := l.arrivals.Sum(l.blobsOf(r.Image))
	var from []string
	if came.Peers > 0 {
		from = append(from, "its peers")
	}
	if came.Media > 0 {
		from = append(from, "the medium in this node")
	}
	if came.Registry > 0 {
		from = append(from, "the registry of its bundle")
	}
	switch {
	case len(from) > 0:
		return "from " + strings.Join(from, " and ") + gone
	case r.FromLocalBlobs:
		return "from this node's own copy"
	}
	return "from its peers or a medium" + gone // an earlier agent process saw the loss
}

// runtimeName returns the runtime's name and version, for a sentence.
func (l *imageLoop) runtimeName(ctx context.Context) string {
	name, version, err := l.runtime.Version(ctx)
	if err != nil {
		return "not responding"
	}
	return name + " " + version
}
