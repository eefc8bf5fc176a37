package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/text"
)

// pullRepair removes records of interrupted pulls, by which the kubelet would pull pinned images
// again. The image loop runs it.
type pullRepair struct {
	*shared
	// repair removes the records and restarts the kubelet; nil: nothing does.
	repair func(ctx context.Context, note string, ids, names []string) (int, error)
	// last is when records were removed last.
	last time.Time
}

// repairGap is the least time between two restarts of the kubelet. If records appear again
// sooner, a restart does not help.
const repairGap = 10 * time.Minute

// run removes records by which the kubelet would pull pinned images again.
func (pr *pullRepair) run(ctx context.Context, w *desired.State) {
	if pr.repair == nil || time.Since(pr.last) < repairGap {
		return
	}
	have, err := pr.runtime.Present(ctx)
	if err != nil {
		return // the next pass retries
	}
	var names, ids []string
	for _, img := range w.Pins.Images {
		names = append(names, img.Name)
	}
	for _, p := range have {
		if slices.ContainsFunc(p.Tags, func(t string) bool { return slices.Contains(names, t) }) {
			ids = append(ids, p.ID)
			names = append(names, p.Digests...)
		}
	}
	removed, err := pr.repair(ctx, pr.conf.Path("kubelet-restart"), ids, names)
	if err != nil {
		pr.log.Warn("failed to remove pull records of the kubelet; it may pull pinned images again", "error", err)
		return
	}
	if removed > 0 {
		pr.last = time.Now()
		pr.emitEvent(ctx, eventPullsRepaired, fmt.Sprintf("removed %s of pulls that were cut off, by which the kubelet would pull pinned images again, and restarted the kubelet", text.Count(removed, "record")))
	}
}
