package clusterapi

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// question is one CanUpdate request while its fields are distributed to the updaters.
type question struct {
	hook     hooks.Hook
	settings map[string]string
	objects  []capidiff.Object
	// alone are the roles of objects that only one side has.
	alone []string
	// changes are those of all objects by path.
	changes map[string]model.Change
	// reasons a path is not moved, by path, as the updaters said.
	reasons map[string][]string
	// silent are the updaters without an answer, with the reason.
	silent []string
	// refused are the messages of updaters that refuse any change.
	refused []string
	// harmless is true while no claim makes the machine unavailable.
	harmless bool
}

// distribute asks the updaters, and returns which one owns each field and which fields are
// left.
func (q *question) distribute(list []updateplan.Updater) updateplan.Covered {
	ask := updateplan.Question{Current: updateplan.Fields{}, Desired: updateplan.Fields{}}
	for path, c := range q.changes {
		ask.Current[path], ask.Desired[path] = c.From, c.To
	}
	c := updateplan.Cover(list, ask)
	q.harmless = true
	for _, s := range c.Steps {
		q.harmless = q.harmless && s.Disruption == model.DisruptionNone
	}
	return c
}

func newQuestion(h hooks.Hook, r hooks.Request) *question {
	q := &question{hook: h, settings: r.Settings, changes: map[string]model.Change{}, reasons: map[string][]string{}}
	q.objects, q.alone = h.Pairs(r)
	for _, o := range q.objects {
		for _, c := range capidiff.Differences(o) {
			q.changes[c.Path] = c
		}
	}
	return q
}

// withDesired returns the objects with the given paths set to their desired values.
func (q *question) withDesired(paths map[string]bool) hooks.Objects {
	out := hooks.Objects{}
	for _, o := range q.objects {
		out[o.Role] = capidiff.Move(o, paths)
	}
	return out
}

// patches returns the patches for the claimed paths; an unchanged object has none.
func (q *question) patches(claimed map[string]bool) map[string]hooks.Patch {
	out := map[string]hooks.Patch{}
	moved := q.withDesired(claimed)
	for _, o := range q.objects {
		if p, changed := capidiff.Patch(o.Current, moved[o.Role]); changed {
			out[o.Role] = hooks.Patch{PatchType: hooks.JSONPatch, Patch: p}
		}
	}
	return out
}

func (q *question) addReason(path, updater, why string) {
	reason := updater + ": " + why
	if !slices.Contains(q.reasons[path], reason) {
		q.reasons[path] = append(q.reasons[path], reason)
	}
}

// canUpdate answers CanUpdateMachine and CanUpdateMachineSet.
func (s *Server) canUpdate(ctx context.Context, h hooks.Hook, r hooks.Request) hooks.Answer {
	p, err := s.verifiedPool(ctx, h, r)
	if err != nil {
		return refuseMismatch(err)
	}
	external, err := s.externals(ctx)
	if err != nil {
		s.report(ctx, "list Updaters", err)
		return refusal("refit: the API server of the management cluster failed to list Updaters")
	}
	q := newQuestion(h, r)
	list := []updateplan.Updater{kubernetesUpdater(q), newMachinesUpdater(p.newMachinesOnly(r.Settings))}
	for _, e := range external {
		list = append(list, e.updater(ctx, q))
	}
	c := q.distribute(list)
	d := decide(q, c, p.fallback(r.Settings))
	if err := s.record(ctx, &p, d); err != nil {
		s.report(ctx, "write the InPlacePlan", err)
		return refusal("refit: the plan of " + p.String() + " cannot be written, and refit changes nothing without it")
	}
	return d.hookAnswer(q, &p)
}

func refusal(message string) hooks.Answer { return hooks.Answer{Failed: true, Message: message} }

// decision is the result for one change. It contains no value of a field.
type decision struct {
	fallback  v1alpha1.Fallback
	from, to  string
	claims    []v1alpha1.InPlaceClaim
	claimed   map[string]bool
	uncovered []v1alpha1.UncoveredPath
	// silent and refused prevent any change, with every fallback.
	silent, refused []string
}

func decide(q *question, c updateplan.Covered, fallback v1alpha1.Fallback) decision {
	d := decision{fallback: fallback, claimed: map[string]bool{}, silent: q.silent, refused: q.refused}
	if v, ok := q.changes[capidiff.PathVersion]; ok {
		d.from, d.to = v.From, v.To
	}
	for _, step := range c.Steps {
		claim := v1alpha1.InPlaceClaim{Updater: step.Updater, Disruption: string(step.Disruption)}
		for _, ch := range step.Changes {
			claim.Paths = append(claim.Paths, ch.Path)
			d.claimed[ch.Path] = true
		}
		sort.Strings(claim.Paths)
		d.claims = append(d.claims, claim)
	}
	for _, role := range q.alone {
		d.uncovered = append(d.uncovered, v1alpha1.UncoveredPath{Path: role, Why: "the object exists only before or only after the change, and no patch creates or removes one"})
	}
	for _, left := range c.Left {
		d.uncovered = append(d.uncovered, v1alpha1.UncoveredPath{Path: left.Path, Why: strings.Join(q.reasons[left.Path], "; ")})
	}
	sort.Strings(d.silent)
	sort.Strings(d.refused)
	d.silent, d.refused = slices.Compact(d.silent), slices.Compact(d.refused)
	return d
}

// hookAnswer returns the answer for Cluster API, with the same text for the same change.
func (d *decision) hookAnswer(q *question, p *pool) hooks.Answer {
	switch {
	case len(d.silent)+len(d.refused) > 0, len(d.uncovered) > 0 && d.fallback != v1alpha1.FallbackReplace:
		_, message := d.coveredCondition(p)
		return refusal("refit: " + message + "; see InPlacePlan " + p.Namespace + "/" + p.planName())
	}
	return hooks.Answer{Patches: q.patches(d.claimed), Harmless: q.harmless}
}

// maxNamed is how many paths a message names; the plan lists more.
const maxNamed = 5

// coveredCondition returns reason and message of the Covered condition.
func (d *decision) coveredCondition(p *pool) (reason, message string) {
	switch {
	case len(d.silent) > 0:
		return v1alpha1.ReasonUpdaterUnreachable, strings.Join(d.silent, "; ")
	case len(d.refused) > 0:
		return v1alpha1.ReasonNoUpdater, strings.Join(d.refused, "; ")
	case len(d.uncovered) == 0 && len(d.claims) == 0:
		return v1alpha1.ReasonNothingToDo, "no field that Cluster API compares differs"
	case len(d.uncovered) == 0:
		return v1alpha1.ReasonAsExpected, "every field of the change has an updater"
	}
	var paths []string
	for _, u := range d.uncovered[:min(len(d.uncovered), maxNamed)] {
		paths = append(paths, u.Path)
	}
	if more := len(d.uncovered) - len(paths); more > 0 {
		paths = append(paths, fmt.Sprintf("%d more", more))
	}
	message = "no updater covers " + strings.Join(paths, ", ")
	if d.fallback == v1alpha1.FallbackReplace {
		return v1alpha1.ReasonReplacementFallback, message + ": Cluster API replaces the machines"
	}
	return v1alpha1.ReasonNoUpdater, message + ": the machines of " + p.String() + " stay unchanged; remove the field from the change, register an Updater, or set " +
		v1alpha1.AnnotationFallback + ": " + string(v1alpha1.FallbackReplace)
}
