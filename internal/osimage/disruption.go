package osimage

import (
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// ChangeKind of a thing that changed.
type ChangeKind string

// Kinds.
const (
	ChangeFile      ChangeKind = "file"
	ChangeUnit      ChangeKind = "unit"
	ChangeSSHKey    ChangeKind = "ssh key"
	ChangeArguments ChangeKind = "kernel arguments"
	ChangePackages  ChangeKind = "packages"
	ChangeImage     ChangeKind = "image" // the base, or anything that only an image brings
)

// Change is one thing that is added, changed or gone; all three count the same.
type Change struct {
	Kind ChangeKind
	// Name is the path or the unit; empty for what there is one of.
	Name string
	// Says: the configuration itself says what it costs (disruption and units of a
	// file, disruption of a unit). It comes before all rules.
	Says []Action
}

func (c Change) String() string { return strings.TrimSpace(string(c.Kind) + " " + c.Name) }

// RuleMatch says which rule a change fell under.
type RuleMatch struct {
	Change  Change
	Rule    string
	Actions []Action
}

// Disruption is what is done about some changes.
type Disruption struct {
	// Actions in the order in which they are done: Drain before anything is
	// written, then DaemonReload, reloads and restarts. Empty for nothing.
	Actions []Action
	Because []RuleMatch
}

// Reboots reports whether the node is booted anew.
func (a Disruption) Reboots() bool { return slices.Contains(a.Actions, Action{ActionReboot, ""}) }

// Drains reports whether pods are evicted.
func (a Disruption) Drains() bool {
	return a.Reboots() || slices.Contains(a.Actions, Action{ActionDrain, ""})
}

// DecideDisruption says what a pool's rules and the defaults come to.
func DecideDisruption(pool []Rule, changes []Change) Disruption {
	var out Disruption
	for _, c := range changes {
		b := RuleMatch{Change: c}
		b.Actions, b.Rule = actionsFor(pool, c)
		out.Because = append(out.Because, b)
		out.Actions = append(out.Actions, b.Actions...)
	}
	out.Actions = orderActions(out.Actions)
	return out
}

func actionsFor(pool []Rule, c Change) ([]Action, string) {
	reboot := []Action{{ActionReboot, ""}}
	switch c.Kind {
	case ChangeArguments, ChangePackages, ChangeImage:
		return reboot, "only an image that is booted brings " + string(c.Kind)
	case ChangeSSHKey, ChangeFile, ChangeUnit:
	}
	if len(c.Says) > 0 {
		return c.Says, "the NodeConfig says so"
	}
	if r := closest(pool, c); r != nil {
		return r.Actions, "a rule of the pool"
	}
	if r := closest(DefaultRules(), c); r != nil {
		return r.Actions, "a rule of refit's"
	}
	return reboot, "no rule speaks of it"
}

// closest is the rule whose pattern says most of the thing, the first of equals.
func closest(rules []Rule, c Change) *Rule {
	best, at := -1, -1
	for i, r := range rules {
		if n := nearness(r, c); n > best {
			best, at = n, i
		}
	}
	if at < 0 {
		return nil
	}
	return &rules[at]
}

// exact is nearer than any pattern.
const exact = 1 << 20

// nearness of a rule to a change; -1 if it does not speak of it.
func nearness(r Rule, c Change) int {
	best := -1
	switch c.Kind {
	case ChangeSSHKey:
		if r.SSHKeys {
			return exact
		}
	case ChangeFile:
		for _, pattern := range r.Files {
			best = max(best, fileNearness(pattern, c.Name))
		}
	case ChangeUnit:
		for _, pattern := range r.Units {
			if pattern == c.Name {
				best = exact
			} else if ok, _ := path.Match(pattern, c.Name); ok {
				best = max(best, literal(pattern))
			}
		}
	case ChangeArguments, ChangePackages, ChangeImage:
	}
	return best
}

// fileNearness: the path itself, a directory above it, or a pattern of either.
func fileNearness(pattern, file string) int {
	pattern = strings.TrimSuffix(pattern, "/")
	if pattern == file {
		return exact
	}
	if matches(strings.Split(pattern, "/"), strings.Split(file, "/")) {
		return literal(pattern)
	}
	return -1
}

// literal is how much of a pattern is said and not left open.
func literal(pattern string) int { return len(strings.ReplaceAll(pattern, "*", "")) }

// matches: a pattern that ends before the path is a directory above it.
func matches(pattern, file []string) bool {
	if len(pattern) == 0 {
		return true
	}
	if pattern[0] == "**" {
		for i := range len(file) + 1 {
			if matches(pattern[1:], file[i:]) {
				return true
			}
		}
		return false
	}
	if len(file) == 0 {
		return false
	}
	ok, _ := path.Match(pattern[0], file[0])
	return ok && matches(pattern[1:], file[1:])
}

// rank is when an action is done.
var rank = map[ActionType]int{ActionDrain: 0, ActionDaemonReload: 1, ActionReload: 2, ActionRestart: 3}

// orderActions puts actions in the order in which they are done, each once. A reboot is
// all there is; None is nothing. What restarts need not reload.
func orderActions(actions []Action) []Action {
	var out []Action
	for _, a := range actions {
		switch {
		case a.Type == ActionReboot:
			return []Action{a}
		case a.Type == ActionNone, slices.Contains(out, a):
		case a.Type == ActionReload && slices.Contains(actions, Action{ActionRestart, a.Unit}):
		default:
			out = append(out, a)
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if rank[a.Type] != rank[b.Type] {
			return rank[a.Type] < rank[b.Type]
		}
		return a.Unit < b.Unit
	})
	return out
}

// ActionsOf says what a disruption of the configuration's own words means.
func ActionsOf(d model.Disruption, units []string) []Action {
	each := func(t ActionType) []Action {
		if len(units) == 0 {
			return []Action{{ActionNone, ""}}
		}
		var out []Action
		for _, u := range units {
			out = append(out, Action{t, u})
		}
		return out
	}
	switch d {
	case model.DisruptionReload:
		return each(ActionReload)
	case model.DisruptionRestart:
		return each(ActionRestart)
	case model.DisruptionDrain:
		out := []Action{{ActionDrain, ""}}
		for _, u := range units {
			out = append(out, Action{ActionRestart, u})
		}
		return out
	case model.DisruptionReboot:
		return []Action{{ActionReboot, ""}}
	case model.DisruptionNone:
		return []Action{{ActionNone, ""}}
	}
	return nil
}

// As is the other way round: what of an answer goes into a configuration's file.
func (a Disruption) As() (model.Disruption, []string) {
	worst := model.DisruptionNone
	var units []string
	for _, x := range a.Actions {
		switch x.Type {
		case ActionReboot:
			return model.DisruptionReboot, nil
		case ActionDrain:
			worst = model.DisruptionDrain
		case ActionRestart, ActionDaemonReload:
			if worst != model.DisruptionDrain {
				worst = model.DisruptionRestart
			}
		case ActionReload:
			if worst == model.DisruptionNone {
				worst = model.DisruptionReload
			}
		case ActionNone:
		}
		if x.Unit != "" && !slices.Contains(units, x.Unit) {
			units = append(units, x.Unit)
		}
	}
	return worst, units
}
