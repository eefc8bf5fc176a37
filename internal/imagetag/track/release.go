package track

import (
	"slices"
	"time"
)

// Selection says how an image came to be approved in this very look: of which class,
// by whom, and in the place of which.
type Selection struct {
	Class Class
	By    string
	From  *Image
}

// Release is the record of one image that was taken.
type Release struct {
	Digest, Long   string
	From, FromLong string
	Class          Class
	By             string
	// SelectedAt; StartedAt of the first target; EndedAt. Zero until then.
	SelectedAt, StartedAt, EndedAt time.Time
	Result, Message                string
}

// Results of a Release. The words are those of the API.
const (
	ResultRolling    = "Rolling"
	ResultProposed   = "Proposed"
	ResultHalted     = "Halted"
	ResultDone       = "Done"
	ResultReplaced   = "Replaced"
	ResultRolledBack = "RolledBack"
)

// maxReleases that are remembered.
const maxReleases = 20

// RecordRelease updates the records, the latest first, with the decision and the progress of
// the targets. Without news it changes nothing.
func RecordRelease(list []Release, s State, rows []Row, now time.Time) []Release {
	list = slices.Clone(list)
	a := s.Approved
	if len(list) > 0 && !list[0].isFor(a) {
		list[0].close(&s, now)
	}
	if a == nil {
		return list
	}
	if len(list) == 0 || !list[0].isFor(a) {
		list = append([]Release{newRelease(&s)}, list...)
		list = list[:min(len(list), maxReleases)]
	}
	list[0].updateResult(rows, now)
	return list
}

// isFor reports whether a record is about what is approved now.
func (r *Release) isFor(a *Image) bool {
	return a != nil && r.Digest == a.Digest && r.SelectedAt.Equal(a.At)
}

// newRelease the record of what is approved now.
func newRelease(s *State) Release {
	r := Release{Digest: s.Approved.Digest, Long: s.Approved.Long, SelectedAt: s.Approved.At, Result: ResultRolling, By: "unknown: it was taken before records were kept"}
	var from *Image
	if len(s.History) > 0 {
		from = &s.History[0]
	}
	if t := s.Selection; t != nil {
		r.Class, r.By, from = t.Class, t.By, t.From
	}
	if from != nil {
		r.From, r.FromLong = from.Digest, from.Long
	}
	return r
}

// close closes a record when another image, or none, is approved.
func (r *Release) close(s *State, now time.Time) {
	i := slices.IndexFunc(s.RolledBack, func(b RolledBack) bool { return b.Digest == r.Digest })
	switch {
	case r.Result == ResultRolledBack, r.Result == ResultReplaced:
	case i >= 0:
		r.Result, r.EndedAt, r.Message = ResultRolledBack, now, "left by "+s.RolledBack[i].By
	case r.Result != ResultDone:
		r.Result, r.EndedAt, r.Message = ResultReplaced, now, ""
	}
}

// updateResult the targets of what is approved, until all have it.
func (r *Release) updateResult(rows []Row, now time.Time) {
	if r.Result == ResultDone {
		return
	}
	count := map[string]int{}
	halted := ""
	for _, row := range rows {
		count[row.State]++
		if row.State == Stopped {
			halted = or(halted, row.Key+": "+row.Message)
		}
	}
	if count[Rolling] > 0 && r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	r.Message = ""
	switch {
	case count[Current]+count[OnNextRun] == len(rows):
		r.Result, r.EndedAt = ResultDone, now
	case halted != "" && count[Rolling]+count[Preloading] == 0:
		r.Result, r.Message = ResultHalted, halted
	case count[Rolling]+count[Preloading]+count[Waiting] == 0:
		r.Result = ResultProposed
	default:
		r.Result = ResultRolling
	}
}
