package updateplan

import (
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// External marks the steps of external updaters: what follows is the updater's name.
const External = "external/"

// deadlineExternal is for an external updater to bring a node to where it said it
// would, in seconds.
const deadlineExternal = 3600

// UncoveredChanges are the differences of a node that no built-in updater covers; is is the node
// as these leave it, want what is desired of it.
func UncoveredChanges(in *Input, n Node) (left []model.Change, is, want Fields) {
	q := Question{Input: in, Node: n, Current: currentFields(n), Desired: desiredFields(in, n)}
	c := Cover(Builtin(), q)
	for _, s := range c.Steps {
		for _, d := range s.Changes {
			q.Current[d.Path] = d.To
		}
	}
	return c.Left, q.Current, q.Desired
}

// offered makes updaters of what external ones answered about a node.
func offered(n Node) []Updater {
	out := make([]Updater, 0, len(n.Offers))
	for _, o := range n.Offers {
		out = append(out, Updater{Name: External + o.Updater, Claim: o.claim})
	}
	return out
}

// claim takes what it said that it moves. The controller calls it for the step, after the
// node's own steps; the agent's observation decides whether it is done.
func (o Offer) claim(q Question) Claim {
	s := model.Step{ID: "external-" + o.Updater, Verb: "update", By: model.ByController, Disruption: model.DisruptionDrain, DeadlineSeconds: deadlineExternal,
		NotReversible: "refit cannot ask Updater " + o.Updater + " to undo its changes"}
	if o.Harmless {
		s.Disruption = model.DisruptionNone
	}
	var c Claim
	for _, d := range q.Left {
		switch {
		case !slices.Contains(o.Asked, d.Path):
		case slices.Contains(o.Moves, d.Path):
			s.Changes = append(s.Changes, d)
		default:
			c.Refusals = append(c.Refusals, Refusal{Path: d.Path, Why: o.why(), Fix: o.fix()})
		}
	}
	if len(s.Changes) > 0 {
		c.Steps = []model.Step{s}
	}
	return c
}

func (o Offer) why() string {
	switch {
	case o.Pending:
		return "it has not answered yet"
	case o.Silent != "":
		return o.Silent
	case o.Refused != "":
		return "it refuses: " + o.Refused
	}
	return "it does not claim it"
}

func (o Offer) fix() string {
	if o.Pending || o.Silent != "" {
		return "see that Updater " + o.Updater + " answers (kubectl get updaters), or change what is wanted"
	}
	return ""
}

// waitsForOffer reports whether a path may yet be taken by an updater that was asked
// and gave no answer.
func waitsForOffer(n Node, path string) bool {
	return slices.ContainsFunc(n.Offers, func(o Offer) bool { return (o.Pending || o.Silent != "") && slices.Contains(o.Asked, path) })
}

// ExternalUpdater reports whether a step is an external updater's, and whose.
func ExternalUpdater(s model.Step) (updater string, ok bool) {
	if len(s.Updater) > len(External) && s.Updater[:len(External)] == External {
		return s.Updater[len(External):], true
	}
	return "", false
}

// NotYetExternal is the first step of an external updater whose changes are not
// observed on a node, nil if there is none; says what is not so. own is true if
// something else is not so either.
func NotYetExternal(np model.NodePlan, n Node) (step *model.Step, says string, own bool) {
	for i := range np.Steps {
		s := &np.Steps[i]
		missing := NotYet(model.NodePlan{Steps: []model.Step{*s}}, n)
		if missing == "" {
			continue
		}
		if _, ext := ExternalUpdater(*s); !ext {
			own = true
		} else if step == nil {
			step, says = s, missing
		}
	}
	return step, says, own
}
