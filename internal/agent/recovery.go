package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// eventTeller is an API that takes events about this node.
type eventTeller interface {
	Event(ctx context.Context, reason, message string) error
}

// Reasons of events about a node.
const (
	eventRestored = "ImageRestored"
	eventMended   = "PullRecordsMended"
	eventReplaced = v1alpha1.ReasonStoreReplaced
	eventDrill    = "Drill"
)

// newStore says, when the node is told something for the first time, that its
// NodeUpdate speaks of another store than this one: what another agent had held here
// is gone, and everything comes again. What that one had run is not run again: its
// permission stands, and nobody watches over the node.
func (a *Agent) newStore(ctx context.Context, nu *v1alpha1.NodeUpdate) error {
	a.mu.Lock()
	heard := a.heard
	a.mu.Unlock()
	was := nu.Status.Agent
	if heard || was == nil || was.PublicKey == "" || was.PublicKey == a.id.PublicKey() {
		return nil
	}
	if run, ended := ranBefore(nu); ended != nil {
		if err := a.runner.Adopt(run, *ended); err != nil {
			return fmt.Errorf("what this node ran under another store cannot be noted: %w", err)
		}
	}
	held := int32(0)
	if h := nu.Status.Pins; h != nil {
		held = h.ImagesReady
	}
	a.update(func(s *state) { s.replaced = true })
	a.tell(ctx, eventReplaced, fmt.Sprintf("node %s has another store than the one that was known here, with %d images (a new disk, or installed anew): everything comes again from its neighbours or a medium", a.conf.Node, held))
	return nil
}

// ranBefore is the run that is permitted, as its last attempt, and how that ended; nil if
// it did not, or never began.
func ranBefore(nu *v1alpha1.NodeUpdate) (v1alpha1.NodeRun, *v1alpha1.NodeRunStatus) {
	run, s := nu.Spec.Run, nu.Status.Run
	if run == nil || s == nil || s.UID != run.UID || s.Attempt < run.Attempt || s.State == v1alpha1.RunRunning {
		return v1alpha1.NodeRun{}, nil
	}
	last := *run
	last.Attempt = s.Attempt
	return last, s
}

// tell says a thing in the log and as an event; one that does not get through is lost.
func (a *Agent) tell(ctx context.Context, reason, message string) {
	a.log.Info(message, "event", reason)
	t, ok := a.api.(eventTeller)
	if !ok {
		return
	}
	if err := t.Event(ctx, reason, message); err != nil {
		a.log.Info("failed to record event", "error", err)
	}
}

// lookAfter says what came back, and once all is held, that the kubelet uses it.
func (a *Agent) lookAfter(ctx context.Context, w *desired.State, r imagekeeper.Result, busy bool) {
	a.tellRestored(ctx, r.Restored)
	if !r.Complete() {
		return
	}
	a.arrivals.Forget() // what is lost from now on, and is here, is this node's own
	if !busy {
		a.mendPulls(ctx, w)
		wake(a.wakeSettled)
	}
}

// settledLoop does what nobody waits for, when everything is held.
func (a *Agent) settledLoop(ctx context.Context) {
	for a.settled != nil {
		select {
		case <-ctx.Done():
			return
		case id := <-a.drills:
			a.playDrill(ctx, id)
			continue
		case <-a.wakeSettled:
		}
		if w := a.wanted(); w != nil {
			a.settled(ctx, w.Hold.Images, a.library)
		}
	}
}

// mostEvents is how many images get an event of their own; a whole store that was
// lost is one event more.
const mostEvents = 5

// tellRestored says of images that had gone from the runtime from where they came back.
func (a *Agent) tellRestored(ctx context.Context, all []imagekeeper.Restored) {
	for i, r := range all {
		if i == mostEvents {
			a.tell(ctx, eventRestored, fmt.Sprintf("%d more images had gone from the container runtime and are back", len(all)-i))
			return
		}
		a.tell(ctx, eventRestored, fmt.Sprintf("image %s had gone from the container runtime and is back, pinned, %s", r.Image.Name, a.from(r)))
	}
}

// from says from where an image came back. What came again was not here when it
// was wanted; it may have come before the loss was seen.
func (a *Agent) from(r imagekeeper.Restored) string {
	const gone = ": this node's own copy was gone too"
	came := a.arrivals.Of(a.blobsOf(r.Image))
	switch {
	case came.Media > 0 && came.Peers > 0:
		return "from its neighbours and the medium in this node" + gone
	case came.Media > 0:
		return "from the medium in this node" + gone
	case came.Peers > 0:
		return "from its neighbours" + gone
	case r.Own:
		return "from this node's own copy"
	}
	return "from its neighbours or a medium" + gone // an agent before this one saw it
}

// blobsOf are the digests of an image's blobs that this node needs.
func (a *Agent) blobsOf(img model.HeldImage) (out []string) {
	shelf := a.library.Shelf(img.Bundle)
	if shelf == nil {
		return nil
	}
	b := shelf.Bundle()
	have := b.Held(img)
	if have == nil {
		return nil
	}
	for _, n := range pin.Share(b, have, platform(), shelf.ReadSmall) {
		out = append(out, b.Metadata.Blobs[n].Digest)
	}
	return out
}

// runtimeName is the runtime's name and version, for a sentence.
func (a *Agent) runtimeName(ctx context.Context) string {
	name, version, err := a.runtime.Version(ctx)
	if err != nil {
		return "which does not answer"
	}
	return name + " " + version
}

// mendGap is the least time between two restarts of the kubelet because of its
// records: if they come anew, it is not a restart that helps.
const mendGap = 10 * time.Minute

// mendPulls sees to it that the kubelet does not pull again what is held.
func (a *Agent) mendPulls(ctx context.Context, w *desired.State) {
	if a.mend == nil || time.Since(a.mended) < mendGap {
		return
	}
	have, err := a.runtime.Present(ctx)
	if err != nil {
		return // it is looked at again with the next pass
	}
	var names, ids []string
	for _, img := range w.Hold.Images {
		names = append(names, img.Name)
	}
	for _, p := range have {
		if slices.ContainsFunc(p.Tags, func(t string) bool { return slices.Contains(names, t) }) {
			ids = append(ids, p.ID)
			names = append(names, p.Digests...)
		}
	}
	mended, err := a.mend(ctx, a.conf.Path("kubelet-restart"), ids, names)
	if err != nil {
		a.log.Warn("the kubelet would pull images again that are held, and that could not be mended", "error", err)
		return
	}
	if mended > 0 {
		a.mended = time.Now()
		a.tell(ctx, eventMended, fmt.Sprintf("the kubelet had records of pulls that were cut off (%d), by which it would pull held images again: they are removed, and it was restarted", mended))
	}
}
