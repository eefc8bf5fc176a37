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

// state is what the loops report; guarded by shared.mu. The status loop builds the status of it.
type state struct {
	// present: the NodeUpdate exists, so that there is a status to write.
	present bool
	// address is where peers find this node.
	address string
	// unreadVerdict is why the agent does not follow the NodeUpdate or a Content that it names.
	unreadVerdict *model.Blocker
	// replaced: the NodeUpdate knows another store of this node, and its images are not all
	// here again.
	replaced bool
	// sent is the last status that was written.
	sent *v1alpha1.NodeUpdateStatus
	// apiReachedAt is when the API server answered last, to the watch or to the status loop;
	// apiError is why it does not answer now.
	apiReachedAt time.Time
	apiError     string
	// stored are the bundles in media whose content is all on this node's disk.
	stored []string

	media       []v1alpha1.Medium // the most important first
	pins        v1alpha1.PinStatus
	fileSystems []v1alpha1.FileSystem
	observed    *v1alpha1.Observed
	// observedPins is the pin set whose programs were compared with the node's.
	observedPins string
	health       *v1alpha1.NodeHealth
	coldStart    *v1alpha1.ColdStart
	restoreDrill *v1alpha1.RestoreDrill
	problems     []statefile.Problem
	run          *v1alpha1.NodeRunStatus
	// runVerdict is why a permitted run does not start.
	runVerdict *model.Blocker

	// Why bundles or images are incomplete, by importance.
	bundleVerdicts, imageVerdicts []model.Blocker
	// serverVerdict is why this node does not serve its peers.
	serverVerdict *model.Blocker
	// copying: chunks are on their way.
	copying bool
	// bundles whose headers this node serves.
	bundles []string
	// failedFetches are bundles that do not come from their registries.
	failedFetches []v1alpha1.FailedFetch
}

// countPins stores the counts of a pass over the images.
func (s *state) countPins(r imagekeeper.Result) {
	s.pins.ImagesTotal, s.pins.ImagesReady, s.pins.ImagesPinned = int32(r.Total), int32(r.Held), int32(r.Pinned)
	s.pins.FetchedTotal, s.pins.FetchedReady = int32(r.FetchedTotal), int32(r.Fetched)
}

// status builds the NodeUpdate's status from the state.
func (l *statusLoop) status(now time.Time) *v1alpha1.NodeUpdateStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.state
	out := &v1alpha1.NodeUpdateStatus{
		Agent:       &v1alpha1.AgentInfo{Version: agentVersion(), Address: s.address, PublicKey: l.id.PublicKey(), Updaters: l.runner.Names(), Formats: model.ContentFormats()},
		Observed:    s.observed,
		Health:      s.health,
		FileSystems: s.fileSystems,
		Bundles:     s.bundles,
		Problems:    nodeProblems(s.problems),

		RestoreDrill: s.restoreDrill,

		FailedFetches: s.failedFetches,
	}
	if s.run != nil {
		run := *s.run
		out.Run = &run
	}
	out.Media = slices.Clone(s.media[:min(len(s.media), 8)])
	if l.want != nil {
		out.ObservedGeneration = l.want.Generation
		if l.want.Spec.Pins != "" {
			// Content names the list of the counts: after a new list arrived, they are
			// still those of the previous one.
			h := s.pins
			from := l.sources.Sum(l.want.Bundles())
			h.BytesFromMedia, h.BytesFromPeers, h.BytesFromRegistry = from.Media, from.Peers, from.Registry
			out.Pins, out.ColdStart = &h, s.coldStart
		}
	}
	v := l.view()
	if old := l.authority.Stale(now); old != "" {
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
