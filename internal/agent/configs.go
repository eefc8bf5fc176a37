package agent

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

// What a rendered configuration is followed for outside of a run.
const (
	forDrift  = "drift"
	forFields = "fields"
	forStage  = "stage"
)

const (
	// configTime bounds one check: what the node looks like is reported meanwhile.
	configTime = 5 * time.Second
	// firstConfigRetry doubles up to the most while a configuration is refused.
	firstConfigRetry = 10 * time.Second
	mostConfigRetry  = 10 * time.Minute
)

// configCheck is the last check of a configuration against administrators' objects.
type configCheck struct {
	name    string
	verdict *model.Verdict
	until   time.Time
	pause   time.Duration
}

// follows reports whether administrators stand behind a configuration. One that a run of
// theirs brought here needs no further check, and no API server.
func (a *Agent) follows(ctx context.Context, what, name string, check func(context.Context) *model.Verdict) bool {
	a.mu.Lock()
	last := a.configChecks[what]
	a.mu.Unlock()
	var next configCheck
	switch now := time.Now(); {
	case a.authority.Follows(name):
		next = configCheck{name: name, until: now}
	case last.name == name && now.Before(last.until):
		return last.verdict == nil
	default:
		call, cancel := context.WithTimeout(ctx, configTime)
		defer cancel()
		next = configCheck{name: name, verdict: check(call), pause: firstConfigRetry}
		if last.name == name && last.pause > 0 {
			next.pause = min(2*last.pause, mostConfigRetry)
		}
		wait := next.pause
		if next.verdict == nil {
			wait = authority.Interval
		}
		next.until = now.Add(wait/2 + rand.N(wait))
	}
	a.mu.Lock()
	a.configChecks[what] = next
	a.mu.Unlock()
	a.noteConfig(last, next)
	return next.verdict == nil
}

// noteConfig has the status and an event say what is refused, and no longer what is over.
func (a *Agent) noteConfig(last, next configCheck) {
	v := next.verdict
	if old := last.verdict; old != nil && (v == nil || v.Reason != old.Reason || v.Object != old.Object) {
		a.problems.Clear(old.Reason, old.Object)
		wake(a.wakeProblems)
	}
	if v != nil && (last.verdict == nil || last.verdict.Message != v.Message) {
		a.note(statefile.Problem{Reason: v.Reason, Object: v.Object, Message: v.Message, Fix: v.Fix})
	}
}

// followsConfig checks the configuration that the node is to have.
func (a *Agent) followsConfig(ctx context.Context, what string, r desired.Rendered) bool {
	return a.follows(ctx, what, r.Name, func(ctx context.Context) *model.Verdict {
		return authority.CheckConfig(ctx, a.api, r.Name, r.Config)
	})
}

// visible leaves out fields that are read in files of this node, unless administrators
// named them: their values are published.
func (a *Agent) visible(ctx context.Context, current string, all []desired.Rendered) (configs []*model.NodeConfig, whole bool) {
	whole = true
	for _, r := range all {
		c := r.Config
		approved := len(c.External) == 0 || r.Name == current && a.followsConfig(ctx, forFields, r) || a.authority.Follows(r.Name)
		if !approved {
			less := *c
			less.External = nil
			c, whole = &less, whole && r.Name != current
		}
		configs = append(configs, c)
	}
	return configs, whole
}

// acceptConfigs notes the configurations of a run that administrators stand behind.
func (a *Agent) acceptConfigs(run *v1alpha1.NodeRun) {
	var names []string
	for _, s := range run.Steps {
		if name := s.Params[model.ParamConfig]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if !run.Undo {
		a.authority.Follow(names)
	}
}
