package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

// Purposes for which the agent follows a rendered configuration outside of a run.
const (
	forDrift  = "drift"
	forFields = "fields"
	forStage  = "stage"
)

const (
	// configTime bounds one check, because the loop reports the node only after it.
	configTime = 5 * time.Second
	// firstConfigRetry doubles up to maxConfigRetry while a configuration is refused.
	firstConfigRetry = 10 * time.Second
	maxConfigRetry   = 10 * time.Minute
)

// configCheck is the result of the last check of a configuration against administrators' objects.
type configCheck struct {
	name    string
	verdict *model.Blocker
	until   time.Time
	pause   time.Duration
}

// configApproval checks whether administrators approved a configuration, and caches the last
// check for each purpose. The facts loop and the stage loop ask it. Safe for
// concurrent use.
type configApproval struct {
	*shared

	mu     sync.Mutex
	checks map[string]configCheck // by purpose
}

// approved reports whether administrators approved a configuration. A configuration that an
// approved run applied needs no further check and no API server.
func (ca *configApproval) approved(ctx context.Context, what, name string, check func(context.Context) *model.Blocker) bool {
	ca.mu.Lock()
	last := ca.checks[what]
	ca.mu.Unlock()
	var next configCheck
	switch now := time.Now(); {
	case ca.authority.Follows(name):
		next = configCheck{name: name, until: now}
	case last.name == name && now.Before(last.until):
		return last.verdict == nil
	default:
		call, cancel := context.WithTimeout(ctx, configTime)
		defer cancel()
		next = configCheck{name: name, verdict: check(call), pause: firstConfigRetry}
		if last.name == name && last.pause > 0 {
			next.pause = min(2*last.pause, maxConfigRetry)
		}
		wait := next.pause
		if next.verdict == nil {
			wait = authority.Interval
		}
		next.until = now.Add(wait/2 + rand.N(wait))
	}
	ca.mu.Lock()
	ca.checks[what] = next
	ca.mu.Unlock()
	ca.report(last, next)
	return next.verdict == nil
}

// report records a refused configuration as a problem, and clears the problem when it ends.
func (ca *configApproval) report(last, next configCheck) {
	v := next.verdict
	if old := last.verdict; old != nil && (v == nil || v.Reason != old.Reason || v.Object != old.Object) {
		ca.problems.Clear(old.Reason, old.Object)
		wake(ca.wakeProblems)
	}
	if v != nil && (last.verdict == nil || last.verdict.Message != v.Message) {
		ca.reportProblem(statefile.Problem{Reason: v.Reason, Object: v.Object, Message: v.Message, Fix: v.Fix})
	}
}

// configApproved checks a configuration that the desired state names.
func (ca *configApproval) configApproved(ctx context.Context, what string, r desired.Rendered) bool {
	return ca.approved(ctx, what, r.Name, func(ctx context.Context) *model.Blocker {
		return authority.CheckConfig(ctx, ca.api, r.Name, r.Config)
	})
}

// publishable removes fields that are read from files of this node, unless administrators
// named them: their values appear in the status. whole is false if the current configuration
// lost fields.
func (ca *configApproval) publishable(ctx context.Context, current string, all []desired.Rendered) (configs []*model.NodeConfig, whole bool) {
	whole = true
	for _, r := range all {
		c := r.Config
		approved := len(c.External) == 0 || r.Name == current && ca.configApproved(ctx, forFields, r) || ca.authority.Follows(r.Name)
		if !approved {
			less := *c
			less.External = nil
			c, whole = &less, whole && r.Name != current
		}
		configs = append(configs, c)
	}
	return configs, whole
}
