package gate

import (
	"fmt"
	"sort"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Risk is a check whose "no" a person takes as a warning.
type Risk struct {
	Check, Reason string
	// By is who accepted it, empty if unknown.
	By    string
	Until time.Time
}

// States of a risk; the words of the API's RiskState.
const (
	RiskInForce          = "InForce"
	RiskNotNeeded        = "NotNeeded"
	RiskExpired          = "Expired"
	RiskUnknownCheck     = "UnknownCheck"
	RiskCannotBeAccepted = "CannotBeAccepted"
)

// RiskOutcome is what became of a risk.
type RiskOutcome struct {
	Risk
	State string
	// Covers counts the blockers that became warnings.
	Covers int
}

// risks are the accepted ones, by check; of two for one check the later end counts.
type risks struct {
	now     time.Time
	byCheck map[string]*RiskOutcome
}

func newRisks(accepted []Risk, now time.Time) *risks {
	rs := &risks{now: now, byCheck: map[string]*RiskOutcome{}}
	for _, r := range accepted {
		if old := rs.byCheck[r.Check]; old != nil && !r.Until.After(old.Until) {
			continue
		}
		rs.byCheck[r.Check] = &RiskOutcome{Risk: r, State: rs.stateOf(r)}
	}
	return rs
}

func (rs *risks) stateOf(r Risk) string {
	c, known := FindCheck(r.Check)
	switch {
	case !known:
		return RiskUnknownCheck
	case c.NeverAcceptable != "":
		return RiskCannotBeAccepted
	case !r.Until.After(rs.now):
		return RiskExpired
	}
	return RiskNotNeeded
}

// accept reports whether the blockers of a check are accepted now.
func (rs *risks) accept(c Check, blockers int) bool {
	r := rs.byCheck[c.Name]
	if r == nil || r.State != RiskNotNeeded {
		return false
	}
	r.State, r.Covers = RiskInForce, blockers
	return true
}

// asWarnings says of each blocker who takes it, and until when.
func (rs *risks) asWarnings(c Check, vs []model.Blocker) []model.Blocker {
	r := rs.byCheck[c.Name]
	out := make([]model.Blocker, 0, len(vs))
	who := ""
	if r.By != "" {
		who = " by " + r.By
	}
	for _, v := range vs {
		v.Message = fmt.Sprintf("accepted until %s%s (%s): %s", r.Until.UTC().Format(time.RFC3339), who, r.Reason, v.Message)
		out = append(out, v)
	}
	return out
}

// outcomes are all risks by name, and sentences about those that do nothing.
func (rs *risks) outcomes() ([]RiskOutcome, []model.Blocker) {
	var out []RiskOutcome
	for _, r := range rs.byCheck {
		out = append(out, *r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Check < out[j].Check })
	var said []model.Blocker
	for _, r := range out {
		switch r.State {
		case RiskUnknownCheck:
			said = append(said, model.Blocker{Reason: reasonCheckUnknown, Message: fmt.Sprintf("a risk is accepted for check %q, which the gate does not have: it accepts nothing", r.Check),
				Fix: "`refit gate` lists the checks"})
		case RiskCannotBeAccepted:
			c, _ := FindCheck(r.Check)
			said = append(said, model.Blocker{Reason: reasonRiskNotAcceptable, Message: "the risk accepted for check " + r.Check + " counts for nothing: " + c.NeverAcceptable,
				Fix: "fix what the check names"})
		case RiskExpired:
			said = append(said, model.Blocker{Reason: reasonRiskExpired, Message: fmt.Sprintf("the risk accepted for check %s ended at %s: the check counts again", r.Check, r.Until.UTC().Format(time.RFC3339)),
				Fix: "fix the cause, or `refit accept " + r.Check + " --reason TEXT --until DURATION`"})
		}
	}
	return out, said
}
