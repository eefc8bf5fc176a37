package imagetracks

import (
	"fmt"
	"time"

	"github.com/refit-dev/refit/internal/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/imagetracks/workloads"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// applyWindows reports for every target why it may not start now. A step starts only if it
// would finish within the window, by the time that it took last.
func (l *turn) applyWindows() {
	ws, bad := rolloutfacts.Windows(l.o.Spec.Windows)
	if len(ws) == 0 || bad != "" { // a track with bad windows was refused before
		return
	}
	for _, w := range l.ws {
		need := l.expectedDuration(w)
		f := rollout.FitWindows(ws, l.now, 0, need)
		if f.Now {
			continue
		}
		if !f.Next.IsZero() && (l.opens.IsZero() || f.Next.Before(l.opens)) {
			l.opens = f.Next
		}
		w.Closed = "outside of its windows; the next one opens " + rollout.FormatWindowTime(f.Next)
		if f.Open {
			w.Closed = fmt.Sprintf("it took %s the last time, which does not fit before the window closes at %s; the next one opens %s", rollout.FormatDuration(need), rollout.FormatWindowTime(f.Closes), rollout.FormatWindowTime(f.Next))
		}
	}
}

// expectedDuration is how long the next step of a workload takes: a roll-out, an evicted
// pod, a node. It is 0 before the first one.
func (l *turn) expectedDuration(w *workloads.Workload) time.Duration {
	for i := range l.o.Status.Workloads {
		if t := &l.o.Status.Workloads[i]; t.Workload == w.Key() {
			took := time.Duration(t.TookSeconds) * time.Second
			if w.OnDelete && len(w.Pods) > 1 {
				took /= time.Duration(len(w.Pods))
			}
			return took
		}
	}
	return 0
}

// timing fills in when a workload's roll-out began, and how long it took.
func (l *turn) timing(i int, t *v1alpha1.TrackedWorkload) {
	for j := range l.o.Status.Workloads {
		if old := &l.o.Status.Workloads[j]; old.Workload == t.Workload {
			t.RollingSince, t.TookSeconds = old.RollingSince, old.TookSeconds
		}
	}
	if l.ws[i].Kind == track.StaticPod {
		if s := longest(l.ws[i].Nodes); s > 0 {
			t.TookSeconds = s
		}
		return
	}
	switch {
	case t.State == track.Rolling && t.RollingSince == nil:
		t.RollingSince = toTime(l.now)
	case t.State == track.Current && t.RollingSince != nil:
		t.TookSeconds, t.RollingSince = max(1, seconds(l.now.Sub(t.RollingSince.Time))), nil
	case t.State != track.Rolling:
		t.RollingSince = nil
	}
}

// longest that a node has taken, in seconds; 0 if none has.
func longest(nodes []track.NodePod) int32 {
	var out time.Duration
	for _, n := range nodes {
		if n.Run != nil && n.Run.State == track.RunSucceeded {
			out = max(out, n.Run.Duration)
		}
	}
	return seconds(out)
}

func seconds(d time.Duration) int32 { return int32(min(d, 365*24*time.Hour) / time.Second) }

// record keeps the records of what was taken.
func (l *turn) record() {
	var list []track.Release
	for i := range l.o.Status.Releases {
		r := &l.o.Status.Releases[i]
		list = append(list, track.Release{Digest: r.Digest, Long: r.LongTag, From: r.From, FromLong: r.FromLongTag, Class: track.Class(r.Class), By: r.Actor,
			SelectedAt: r.TakenAt.Time, StartedAt: timeOf(r.StartedAt), EndedAt: timeOf(r.FinishedAt), Result: r.Result, Message: r.Message})
	}
	l.status.Releases = nil
	for _, r := range track.RecordRelease(list, l.state, l.rows, l.now) {
		l.status.Releases = append(l.status.Releases, v1alpha1.TrackRelease{Digest: r.Digest, LongTag: r.Long, From: r.From, FromLongTag: r.FromLong, Class: string(r.Class), Actor: text.Truncate(r.By, maxMessage),
			TakenAt: metav1.NewTime(r.SelectedAt.Truncate(time.Second)), StartedAt: toTime(r.StartedAt), FinishedAt: toTime(r.EndedAt), Result: r.Result, Message: text.Truncate(r.Message, maxRecord)})
	}
}

// maxRecord is the longest message of a record: twenty of them are kept.
const maxRecord = 300
