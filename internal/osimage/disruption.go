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

// Change is a part of a configuration that was added, changed or removed.
type Change struct {
	Kind ChangeKind
	// Name is the path or the unit; empty for kinds with a single thing.
	Name string
	// Declared are the actions that the configuration itself declares (disruption and units
	// of a file, disruption of a unit). They come before all rules.
	Declared []Action
}

func (c Change) String() string { return strings.TrimSpace(string(c.Kind) + " " + c.Name) }

// RuleMatch is the rule that decided a change.
type RuleMatch struct {
	Change  Change
	Rule    string
	Actions []Action
}

// Disruption has the actions that changes need.
type Disruption struct {
	// Actions in order: Drain before the first write, then DaemonReload, reloads and
	// restarts.
	Actions []Action
	Matches []RuleMatch
}

// Reboots reports whether the node reboots.
func (a Disruption) Reboots() bool { return slices.Contains(a.Actions, Action{ActionReboot, ""}) }

// Drains reports whether pods are evicted.
func (a Disruption) Drains() bool {
	return a.Reboots() || slices.Contains(a.Actions, Action{ActionDrain, ""})
}

// DecideDisruption applies a pool's rules, then the default rules.
func DecideDisruption(pool []Rule, changes []Change) Disruption {
	var out Disruption
	for _, c := range changes {
		b := RuleMatch{Change: c}
		b.Actions, b.Rule = actionsFor(pool, c)
		out.Matches = append(out.Matches, b)
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
	if len(c.Declared) > 0 {
		return c.Declared, "the NodeConfig says so"
	}
	if r := closest(pool, c); r != nil {
		return r.Actions, "a rule of the pool"
	}
	if r := closest(DefaultRules(), c); r != nil {
		return r.Actions, "a rule of refit's"
	}
	return reboot, "no rule speaks of it"
}

// closest returns the rule with the most specific pattern, the first of equals.
func closest(rules []Rule, c Change) *Rule {
	at := closestIndex(rules, c)
	if at < 0 {
		return nil
	}
	return &rules[at]
}

// closestIndex is -1 if no rule matches.
func closestIndex(rules []Rule, c Change) int {
	best, at := -1, -1
	for i, r := range rules {
		if n := nearness(r, c); n > best {
			best, at = n, i
		}
	}
	return at
}

// exactNearness is nearer than any pattern.
const exactNearness = 1 << 20

// nearness is how specifically a rule matches a change; -1 for no match.
func nearness(r Rule, c Change) int {
	best := -1
	switch c.Kind {
	case ChangeSSHKey:
		if r.SSHKeys {
			return exactNearness
		}
	case ChangeFile:
		for _, pattern := range r.Files {
			best = max(best, fileNearness(pattern, c.Name))
		}
	case ChangeUnit:
		for _, pattern := range r.Units {
			if pattern == c.Name {
				best = exactNearness
			} else if ok, _ := path.Match(pattern, c.Name); ok {
				best = max(best, literalLength(pattern))
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
		return exactNearness
	}
	if matches(strings.Split(pattern, "/"), strings.Split(file, "/")) {
		return literalLength(pattern)
	}
	return -1
}

// literalLength counts the characters of a pattern that are not wildcards.
func literalLength(pattern string) int { return len(strings.ReplaceAll(pattern, "*", "")) }

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

// rank orders actions.
var rank = map[ActionType]int{ActionDrain: 0, ActionDaemonReload: 1, ActionReload: 2, ActionRestart: 3}

// orderActions sorts actions and removes duplicates. A reboot replaces all others, None counts
// as no action, and a unit that restarts does not also reload.
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

// ActionsOf returns the actions of a disruption that a configuration declares.
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

// ConfigDisruption is the inverse of ActionsOf: the disruption and units for a ConfigFile.
func (a Disruption) ConfigDisruption() (model.Disruption, []string) {
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
