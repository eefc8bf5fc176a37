package clusterapi

import (
	"context"

	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// external is a registered updater that is called over HTTPS.
type external struct{ *hooks.Registered }

// externals lists the registered updaters in the order in which they are called.
func (s *Server) externals(ctx context.Context) ([]external, error) {
	list, err := s.registry.List(ctx, s.Live)
	out := make([]external, 0, len(list))
	for _, r := range list {
		if r.Spec.Nodes {
			continue // it updates nodes, through another protocol
		}
		out = append(out, external{r})
	}
	return out, err
}

// updater makes it one of the planner's updaters. It gets the objects as the updaters before it
// leave them, and claims the fields that its patches set to their desired values. A field that
// it sets to any other value is not covered.
func (e external) updater(ctx context.Context, q *question) updateplan.Updater {
	silenced := false // it gave no answer; do not ask again in this request
	return updateplan.Updater{Name: e.Name, Claim: func(a updateplan.Question) updateplan.Claim {
		wanted := false
		done := map[string]bool{}
		for path := range q.changes {
			done[path] = true
		}
		for _, d := range a.Left {
			delete(done, d.Path)
			wanted = wanted || e.handles(d.Path)
		}
		if !wanted || silenced {
			return updateplan.Claim{}
		}
		desired := hooks.Objects{}
		for _, o := range q.objects {
			desired[o.Role] = o.Desired
		}
		answer, silent := e.Ask(ctx, q.hook, hooks.Request{Settings: q.settings, Current: q.withDesired(done), Desired: desired})
		silenced = silent != "" || answer.Failed
		switch {
		case silent != "":
			q.silent = append(q.silent, silent)
			return updateplan.Claim{}
		case answer.Failed:
			q.refused = append(q.refused, "Updater "+e.Name+" refuses: "+answer.Message)
			return updateplan.Claim{}
		}
		left, wrong := e.remaining(q, answer, q.withDesired(done))
		if wrong != "" {
			silenced = true
			q.silent = append(q.silent, "Updater "+e.Name+": its answer has "+wrong)
			return updateplan.Claim{}
		}
		return e.claim(q, a, answer, left)
	}}
}

func (e external) handles(path string) bool {
	return len(e.Spec.Paths) == 0 || isBelow(path, e.Spec.Paths)
}

// remaining returns the differences that remain after the answer's patches, by path.
func (e external) remaining(q *question, a hooks.Answer, current hooks.Objects) (map[string]bool, string) {
	out := map[string]bool{}
	for _, o := range q.objects {
		o.Current = current[o.Role]
		if p, ok := a.Patches[o.Role]; ok {
			after, err := p.Apply(o.Current)
			if err != nil {
				return nil, err.Error()
			}
			o.Current = after
		}
		for _, d := range capidiff.Differences(o) {
			out[d.Path] = true
		}
	}
	return out, ""
}

func (e external) claim(q *question, a updateplan.Question, answer hooks.Answer, left map[string]bool) updateplan.Claim {
	step := model.Step{Verb: "update", Disruption: model.DisruptionDrain}
	if answer.Harmless {
		step.Disruption = model.DisruptionNone
	}
	for _, d := range a.Left {
		switch {
		case left[d.Path], !e.handles(d.Path):
			q.addReason(d.Path, e.Name, "does not claim it")
		default:
			step.Changes = append(step.Changes, d)
		}
	}
	if len(step.Changes) == 0 {
		return updateplan.Claim{}
	}
	return updateplan.Claim{Steps: []model.Step{step}}
}
