package disruption

import (
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Kind of a thing that changed.
type Kind string

// Kinds.
const (
	File      Kind = "file"
	Unit      Kind = "unit"
	SSHKey    Kind = "ssh key"
	Arguments Kind = "kernel arguments"
	Packages  Kind = "packages"
	Image     Kind = "image" // the base, or anything that only an image brings
)

// Change is one thing that is added, changed or gone; all three count the same.
type Change struct {
	Kind Kind
	// Name is the path or the unit; empty for what there is one of.
	Name string
	// Says: the configuration itself says what it costs (disruption and units of a
	// file, disruption of a unit). It comes before all rules.
	Says []Action
}

func (c Change) String() string { return strings.TrimSpace(string(c.Kind) + " " + c.Name) }

// Because says which rule a change fell under.
type Because struct {
	Change  Change
	Rule    string
	Actions []Action
}

// Answer is what is done about some changes.
type Answer struct {
	// Actions in the order in which they are done: Drain before anything is
	// written, then DaemonReload, reloads and restarts. Empty for nothing.
	Actions []Action
	Because []Because
}

// Reboots reports whether the node is booted anew.
func (a Answer) Reboots() bool { return slices.Contains(a.Actions, Action{Reboot, ""}) }

// Drains reports whether pods are evicted.
func (a Answer) Drains() bool {
	return a.Reboots() || slices.Contains(a.Actions, Action{Drain, ""})
}

// Decide says what a pool's rules and the defaults come to.
func Decide(pool []Rule, changes []Change) Answer {
	var out Answer
	for _, c := range changes {
		b := Because{Change: c}
		b.Actions, b.Rule = one(pool, c)
		out.Because = append(out.Because, b)
		out.Actions = append(out.Actions, b.Actions...)
	}
	out.Actions = order(out.Actions)
	return out
}

func one(pool []Rule, c Change) ([]Action, string) {
	reboot := []Action{{Reboot, ""}}
	switch c.Kind {
	case Arguments, Packages, Image:
		return reboot, "only an image that is booted brings " + string(c.Kind)
	case SSHKey, File, Unit:
	}
	if len(c.Says) > 0 {
		return c.Says, "the NodeConfig says so"
	}
	if r := closest(pool, c); r != nil {
		return r.Actions, "a rule of the pool"
	}
	if r := closest(Defaults(), c); r != nil {
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
	case SSHKey:
		if r.SSHKeys {
			return exact
		}
	case File:
		for _, pattern := range r.Files {
			best = max(best, fileNearness(pattern, c.Name))
		}
	case Unit:
		for _, pattern := range r.Units {
			if pattern == c.Name {
				best = exact
			} else if ok, _ := path.Match(pattern, c.Name); ok {
				best = max(best, literal(pattern))
			}
		}
	case Arguments, Packages, Image:
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
var rank = map[Type]int{Drain: 0, DaemonReload: 1, Reload: 2, Restart: 3}

// order puts actions in the order in which they are done, each once. A reboot is
// all there is; None is nothing. What restarts need not reload.
func order(actions []Action) []Action {
	var out []Action
	for _, a := range actions {
		switch {
		case a.Type == Reboot:
			return []Action{a}
		case a.Type == None, slices.Contains(out, a):
		case a.Type == Reload && slices.Contains(actions, Action{Restart, a.Unit}):
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

// Of says what a disruption of the configuration's own words means.
func Of(d model.Disruption, units []string) []Action {
	each := func(t Type) []Action {
		if len(units) == 0 {
			return []Action{{None, ""}}
		}
		var out []Action
		for _, u := range units {
			out = append(out, Action{t, u})
		}
		return out
	}
	switch d {
	case model.DisruptionReload:
		return each(Reload)
	case model.DisruptionRestart:
		return each(Restart)
	case model.DisruptionDrain:
		out := []Action{{Drain, ""}}
		for _, u := range units {
			out = append(out, Action{Restart, u})
		}
		return out
	case model.DisruptionReboot:
		return []Action{{Reboot, ""}}
	case model.DisruptionNone:
		return []Action{{None, ""}}
	}
	return nil
}

// As is the other way round: what of an answer goes into a configuration's file.
func (a Answer) As() (model.Disruption, []string) {
	worst := model.DisruptionNone
	var units []string
	for _, x := range a.Actions {
		switch x.Type {
		case Reboot:
			return model.DisruptionReboot, nil
		case Drain:
			worst = model.DisruptionDrain
		case Restart, DaemonReload:
			if worst != model.DisruptionDrain {
				worst = model.DisruptionRestart
			}
		case Reload:
			if worst == model.DisruptionNone {
				worst = model.DisruptionReload
			}
		case None:
		}
		if x.Unit != "" && !slices.Contains(units, x.Unit) {
			units = append(units, x.Unit)
		}
	}
	return worst, units
}
