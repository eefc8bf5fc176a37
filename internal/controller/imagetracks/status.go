package imagetracks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/imagetag/track"
)

const (
	// maxNodes named in a status for one digest.
	maxNodes = 16
	// maxMessage of a condition.
	maxMessage = 1024
)

// describe fills in what is seen now, and the conditions.
func (l *turn) describe() {
	st := &l.status
	st.ObservedGeneration = l.o.Generation
	st.Running = l.runningDigests()
	st.Preloaded = ""
	if l.pre.Wanted {
		st.Preloaded = fmt.Sprintf("%d/%d", l.pre.Done, l.pre.Nodes)
	}
	st.Turn = nil
	if l.step.Turn != "" {
		st.Turn = &v1alpha1.TrackTurn{Workload: l.ws[l.step.TurnOf].Key(), Node: l.step.Turn}
	}
	st.Workloads = nil
	for i, r := range l.rows {
		t := v1alpha1.TrackedWorkload{Workload: r.Key, State: r.State, Digest: l.ws[i].Named, Message: text.Truncate(r.Message, maxMessage)}
		l.timing(i, &t)
		st.Workloads = append(st.Workloads, t)
	}
	l.record()
	l.conditions()
}

// runningDigests by the image they belong to, the nodes by name.
func (l *turn) runningDigests() []v1alpha1.RunningDigest {
	by := map[string]*v1alpha1.RunningDigest{}
	for _, w := range l.ws {
		w.Running(l.t, func(digest, node string) {
			known := l.state.Known(digest)
			if known != nil {
				digest = known.Digest
			}
			d := by[digest]
			if d == nil {
				d = &v1alpha1.RunningDigest{Digest: digest}
				if known != nil {
					d.LongTag = known.Long
				}
				by[digest] = d
			}
			d.Pods++
			if !slices.Contains(d.Nodes, node) {
				d.Nodes = append(d.Nodes, node)
			}
		})
	}
	var out []v1alpha1.RunningDigest
	for _, d := range by {
		slices.Sort(d.Nodes)
		d.Nodes = d.Nodes[:min(len(d.Nodes), maxNodes)]
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b v1alpha1.RunningDigest) int { return strings.Compare(a.Digest, b.Digest) })
	return out
}

// summary is the state of a track in one sentence: whether all is as approved, the reason,
// the message, and whether it stays so until a person acts.
type summary struct {
	ready           bool
	reason, message string
	stalled         bool
}

func (l *turn) summarize() summary {
	if e := l.status.PollError; e != nil && l.tolerated() == "" {
		return summary{reason: e.Reason, message: e.Message, stalled: e.Reason == v1alpha1.ReasonTagDeleted || e.Reason == v1alpha1.ReasonRegistryUnauthorized}
	}
	for _, c := range []struct {
		state, reason string
		stalled       bool
	}{
		{track.Stopped, v1alpha1.ReasonWorkloadBlocked, true}, {track.Rolling, v1alpha1.ReasonImageRolling, false},
		{track.Preloading, v1alpha1.ReasonImagePreloading, false}, {track.Proposed, v1alpha1.ReasonImageProposed, true},
	} {
		if text := l.rowsIn(c.state); text != "" {
			return summary{reason: c.reason, message: text, stalled: c.stalled}
		}
	}
	if text := l.waitingForWindows(); text != "" {
		return summary{reason: v1alpha1.ReasonOutsideWindow, message: text}
	}
	return l.summarizeCandidates()
}

// waitingForWindows joins the messages of the targets that wait for a window.
func (l *turn) waitingForWindows() string {
	var out []string
	for _, r := range l.rows {
		if r.Closed && r.State == track.Waiting {
			out = append(out, r.Key+": "+r.Message)
		}
	}
	return strings.Join(out, "; ")
}

// rowsIn joins the messages of the targets in a state.
func (l *turn) rowsIn(state string) string {
	var out []string
	for _, r := range l.rows {
		if r.State == state {
			out = append(out, r.Key+": "+r.Message)
		}
	}
	return strings.Join(out, "; ")
}

// summarizeCandidates is the summary when the targets are as approved, or none is approved.
func (l *turn) summarizeCandidates() summary {
	settled := l.state.Approved != nil && l.rowsIn(track.Waiting) == ""
	// What skips versions comes last: the step before it is what a person can decide.
	steps := slices.Clone(l.status.Candidates)
	slices.SortStableFunc(steps, func(a, b v1alpha1.TrackCandidate) int { return min(len(a.Skips), 1) - min(len(b.Skips), 1) })
	for _, c := range steps {
		text := fmt.Sprintf("%s of class %s: %s", name(c), c.Class, c.Why)
		if len(c.Skips) > 0 {
			if len(steps[0].Skips) > 0 {
				return summary{settled, v1alpha1.ReasonVersionsSkipped, text, true}
			}
			break
		}
		switch c.Decision {
		case v1alpha1.DecisionApproval:
			return summary{settled, v1alpha1.ReasonImageNeedsApproval, text, !settled}
		case v1alpha1.DecisionBlocked:
			return summary{settled, v1alpha1.ReasonImageBlocked, text, true}
		}
	}
	switch {
	case l.state.Approved == nil:
		return summary{reason: v1alpha1.ReasonPollingRegistry, message: "nothing is approved yet"}
	case !settled:
		return summary{reason: v1alpha1.ReasonImageRolling, message: l.rowsIn(track.Waiting)}
	case len(l.rows) == 0:
		return summary{true, v1alpha1.ReasonAsExpected, l.state.Approved.Name() + " is approved; the track has no targets", false}
	}
	return summary{true, v1alpha1.ReasonAsExpected, "all targets are at " + l.state.Approved.Name(), false}
}

func name(c v1alpha1.TrackCandidate) string {
	if c.LongTag != "" {
		return c.LongTag
	}
	return c.Tag + "@" + c.Digest[:min(len(c.Digest), 19)]
}

func (l *turn) conditions() {
	w := l.summarize()
	skew, said := l.skew()
	if skew && w.ready {
		w = summary{reason: v1alpha1.ReasonImageSkewed, message: said}
	}
	blip := l.tolerated()
	w.message = text.Truncate(w.message, maxMessage-len(blip)) + blip
	l.setCondition(v1alpha1.ConditionReady, w.ready, w.reason, w.message)
	l.setCondition(v1alpha1.ConditionReconciling, !w.ready && !w.stalled, w.reason, w.message)
	l.setCondition(v1alpha1.ConditionStalled, w.stalled && !w.ready, w.reason, w.message)
	reason := v1alpha1.ReasonAsExpected
	if skew {
		reason = v1alpha1.ReasonImageSkewed
	}
	l.setCondition(v1alpha1.ConditionSkewed, skew, reason, said)
}

// skew says which digests run where, if it is more than one.
func (l *turn) skew() (bool, string) {
	if len(l.status.Running) < 2 {
		return false, "all pods run one image"
	}
	var out []string
	for _, d := range l.status.Running {
		label := d.LongTag
		if label == "" {
			label = "an image without a known long tag"
		}
		out = append(out, fmt.Sprintf("%s (%s) in %d pods on %s", label, d.Digest, d.Pods, strings.Join(d.Nodes, ", ")))
	}
	return true, strings.Join(out, "; ")
}

func (l *turn) setCondition(kind string, is bool, reason, message string) {
	setCondition(&l.status, l.o.Generation, kind, is, reason, message)
}

func setCondition(st *v1alpha1.ImageTrackStatus, generation int64, kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: text.Truncate(message, maxMessage), ObservedGeneration: generation})
}

// writeInvalid says what a person must correct.
func (r *Reconciler) writeInvalid(ctx context.Context, o *v1alpha1.ImageTrack, why error) error {
	st := *o.Status.DeepCopy()
	st.ObservedGeneration = o.Generation
	for kind, is := range map[string]bool{v1alpha1.ConditionReady: false, v1alpha1.ConditionReconciling: false, v1alpha1.ConditionStalled: true} {
		setCondition(&st, o.Generation, kind, is, v1alpha1.ReasonTrackInvalid, why.Error())
	}
	slices.SortFunc(st.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return r.writeStatus(ctx, o, &st)
}
