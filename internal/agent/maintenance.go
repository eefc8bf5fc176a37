package agent

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/model"
)

// maintenanceLoop does the work that holds up no other loop: what follows once all images
// are pinned, and drills.
type maintenanceLoop struct {
	*shared
	// settled is called when all images are pinned; nil: nothing is done then.
	settled func(ctx context.Context, images []model.PinSetImage, lib *bundlestore.Library)
	// drill restarts the machine; nil: this agent plays no drill.
	drill func(ctx context.Context, id string) error
	// drills has the drill that was requested last.
	drills chan string
	// rehearse restores a snapshot into a scratch directory; nil: this agent rehearses nothing.
	// rehearsals has the one that was requested last.
	rehearse   func(ctx context.Context, id string) v1alpha1.RestoreDrill
	rehearsals chan string
}

// Run works on drills, and calls settled when all images are pinned.
func (l *maintenanceLoop) Run(ctx context.Context) {
	for l.settled != nil {
		select {
		case <-ctx.Done():
			return
		case id := <-l.drills:
			l.playDrill(ctx, id)
			continue
		case id := <-l.rehearsals:
			l.rehearseRestore(ctx, id)
			continue
		case <-l.wakeMaintenance:
		}
		if w := l.desiredState(); w != nil {
			l.settled(ctx, w.Pins.Images, l.library)
		}
	}
}

// drillRetry is when the loop reconsiders a drill that was requested before the first pass
// over the images.
const drillRetry = 5 * time.Second

// requestDrill passes on a drill that the NodeUpdate asks for.
func (l *maintenanceLoop) requestDrill(id string) {
	if id == "" || l.drill == nil {
		return
	}
	select {
	case l.drills <- id:
	default: // the loop is busy with a drill; the next event of the watch names this one again
	}
}

// drillFacts reports whether the images were checked since the start, whether this node has a
// copy of every pinned image, and whether this drill is done.
func (l *maintenanceLoop) drillFacts(id string) (checked, ready, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, c := l.state.pins, l.state.coldStart
	if c == nil {
		return false, false, false
	}
	ready = l.want != nil && h.Content == l.want.Spec.Pins && h.ImagesTotal > 0 && h.ImagesPinned == h.ImagesTotal && c.Copies == h.ImagesTotal
	return true, ready, c.Drill == id
}

// playDrill restarts the machine for a drill, if every pinned image would be restored.
func (l *maintenanceLoop) playDrill(ctx context.Context, id string) {
	checked, ready, done := l.drillFacts(id)
	switch {
	case done:
		return
	case !checked:
		time.AfterFunc(drillRetry, func() { wake(l.wakeImages); l.requestDrill(id) })
		return
	case !ready || l.runner.Busy():
		l.emitEvent(ctx, eventDrill, "drill "+id+" refused: an image is not pinned or has no local copy, or an update is in progress")
		return
	}
	if err := l.drill(ctx, id); err != nil {
		l.emitEvent(ctx, eventDrill, "drill "+id+" failed: "+err.Error())
	}
}

// requestRehearsal passes on a rehearsed restore that the NodeUpdate asks for. last is the one in
// its status: an agent that starts again does not repeat it.
func (l *maintenanceLoop) requestRehearsal(id string, last *v1alpha1.RestoreDrill) {
	if l.rehearse == nil {
		return
	}
	l.mu.Lock()
	if l.state.restoreDrill == nil {
		l.state.restoreDrill = last
	}
	done := l.state.restoreDrill != nil && l.state.restoreDrill.ID == id
	l.mu.Unlock()
	if id == "" || done {
		return
	}
	select {
	case l.rehearsals <- id:
	default: // the loop is busy; the next event of the watch names this one again
	}
}

// rehearseRestore rehearses once for each ID. A run may replace the snapshot meanwhile, so it
// waits for none.
func (l *maintenanceLoop) rehearseRestore(ctx context.Context, id string) {
	l.mu.Lock()
	done := l.state.restoreDrill != nil && l.state.restoreDrill.ID == id
	l.mu.Unlock()
	if done {
		return
	}
	begin := time.Now()
	r := v1alpha1.RestoreDrill{Problem: &v1alpha1.NodeProblem{Reason: v1alpha1.ReasonAnotherUpdateRunning, Object: l.conf.Node,
		Message: "an update of this node is running, which may replace the snapshot", Fix: "Ask again when the update is finished: refit status shows it."}}
	if !l.runner.Busy() {
		r = l.rehearse(ctx, id)
	}
	if ctx.Err() != nil {
		return // the next start continues
	}
	r.ID, r.Milliseconds, r.FinishedAt = id, time.Since(begin).Milliseconds(), metav1.NewTime(time.Now().Truncate(time.Second))
	l.update(func(s *state) { s.restoreDrill = &r })
}
