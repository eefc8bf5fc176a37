package agent

import (
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// state is what the loops know; guarded by Agent.mu. The status is made of it.
type state struct {
	// present: there is a NodeUpdate to report in.
	present bool
	// unread says why the NodeUpdate, or a Content that it names, is not followed.
	unread *model.Verdict
	// replaced: another store than this one was known of the node, and not all that
	// it had is here again.
	replaced bool
	// sent is the status that was written last.
	sent *v1alpha1.NodeUpdateStatus

	media    []v1alpha1.Medium // those that matter most come first
	holding  v1alpha1.PinStatus
	rooms    []v1alpha1.FileSystem
	observed *v1alpha1.Observed
	// observedHold is the hold list whose programs were looked at.
	observedHold string
	health       *v1alpha1.NodeHealth
	cold         *v1alpha1.ColdStart
	problems     []statefile.Problem
	run          *v1alpha1.NodeRunStatus
	// runVerdict says why a permitted run is not started.
	runVerdict *model.Verdict

	// Why the bundles or the images are not complete; the first counts.
	bundleVerdicts, holdVerdicts []model.Verdict
	// doorVerdict says why peers are not answered.
	doorVerdict *model.Verdict
	// copying is under way.
	copying bool
	// bundles whose header is here and served.
	bundles []string
}

// update changes the state and has it published.
func (a *Agent) update(f func(*state)) {
	a.mu.Lock()
	f(&a.state)
	a.mu.Unlock()
	wake(a.wakePublish)
}

// countHeld takes over what a pass over the images found.
func (s *state) countHeld(r imagekeeper.Result) {
	s.holding.ImagesTotal, s.holding.ImagesReady, s.holding.ImagesPinned = int32(r.Total), int32(r.Held), int32(r.Pinned)
	s.holding.FetchedTotal, s.holding.FetchedReady = int32(r.FetchedTotal), int32(r.Fetched)
}

// status makes the NodeUpdate's status of the state.
func (a *Agent) status(now time.Time) *v1alpha1.NodeUpdateStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.state
	out := &v1alpha1.NodeUpdateStatus{
		Agent:       &v1alpha1.AgentInfo{Version: agentVersion(), Address: a.address, PublicKey: a.id.PublicKey(), Updaters: a.runner.Names(), Formats: model.ContentFormats()},
		Observed:    s.observed,
		Health:      s.health,
		FileSystems: s.rooms,
		Bundles:     s.bundles,
		Problems:    nodeProblems(s.problems),
	}
	if s.run != nil {
		run := *s.run
		out.Run = &run
	}
	out.Media = slices.Clone(s.media[:min(len(s.media), 8)])
	if a.want != nil {
		out.ObservedGeneration = a.want.Generation
		if a.want.Spec.Pins != "" {
			// Content stays what the counts are about: after a new list has come they
			// are still those of the one before.
			h := s.holding
			from := a.sources.Of(a.want.Bundles())
			h.BytesFromMedia, h.BytesFromPeers = from.Media, from.Peers
			out.Pins, out.ColdStart = &h, s.cold
		}
	}
	v := a.view()
	if old := a.authority.Stale(now); old != "" {
		v.message = old + "; " + v.message
	}
	out.Phase, out.Message = v.phase, truncate(v.message, messageBytes)
	out.Conditions = conditions(v, s.sent, now)
	if len(out.Problems) > 0 {
		p := out.Problems[0]
		out.Conditions = append(out.Conditions, degraded(view{reason: p.Reason, message: p.Message, generation: v.generation}, s.sent, now))
	}
	return out
}

// truncate keeps the beginning and the end: the cause of a wrapped error stands last.
func truncate(s string, most int) string {
	const between = " ... "
	return text.TruncateMiddle(s, (most-len(between))/2, most, between)
}
