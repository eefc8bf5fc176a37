package update

import (
	"github.com/refit-dev/refit/internal/model"
)

// paramConfig names the Content with the node's rendered configuration; the
// updaters on the node know it by that name.
const paramConfig = "config"

// deadlineFiles is for writing files and restarting services, in seconds.
const deadlineFiles = 600

// configured makes the one step of an updater that brings a node to its rendered
// configuration. The step names the configuration, so that the node does what was
// planned, whatever is rendered meanwhile.
func configured(q Question, id string, mine []model.Change, deadline int32) Claim {
	if q.Node.Config == nil {
		return Claim{}
	}
	wants := q.Node.Config.Fields()
	s := model.Step{ID: id, Verb: "apply", Disruption: model.DisruptionNone, DeadlineSeconds: deadline,
		Params: map[string]string{paramConfig: q.Node.ConfigName}}
	for _, c := range mine {
		if want, ok := wants[c.Path]; !ok || want != c.To {
			continue // somebody else wants that
		}
		s.Changes = append(s.Changes, c)
		if d := q.Node.Config.Disrupts(c.Path); rank[d] > rank[s.Disruption] {
			s.Disruption = d
		}
	}
	if len(s.Changes) == 0 {
		return Claim{}
	}
	return Claim{Steps: []model.Step{s}}
}

// filesUpdater writes files and sets units.
func filesUpdater() Updater {
	return Updater{Name: "files", Claim: func(q Question) Claim {
		return configured(q, "files", append(q.Of(PrefixFile), q.Of(PrefixUnit)...), deadlineFiles)
	}}
}
