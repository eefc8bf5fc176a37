package osimage

import (
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// DriftRule is the policy for changes of other writers to some files and units; Policy is one of
// model's words of drift.
type DriftRule struct {
	Files, Units []string
	Policy       string
}

// AssignDrift sets the policy of each file and unit that a rule matches; the closest rule counts.
func AssignDrift(rules []DriftRule, c model.NodeConfig) model.NodeConfig {
	if len(rules) == 0 {
		return c
	}
	names := make([]Rule, len(rules))
	for i, r := range rules {
		names[i] = Rule{Files: r.Files, Units: r.Units}
	}
	c.Files, c.Units = slices.Clone(c.Files), slices.Clone(c.Units)
	for i := range c.Files {
		if at := closestIndex(names, Change{Kind: ChangeFile, Name: c.Files[i].Path}); at >= 0 {
			c.Files[i].Drift = rules[at].Policy
		}
	}
	for i := range c.Units {
		if at := closestIndex(names, Change{Kind: ChangeUnit, Name: c.Units[i].Name}); at >= 0 {
			c.Units[i].Drift = rules[at].Policy
		}
	}
	return c
}

// HasRule reports whether a rule of the pool is about a file.
func HasRule(pool []Rule, path string) bool {
	return closest(pool, Change{Kind: ChangeFile, Name: path}) != nil
}

// AssignFile sets the disruption of a file whose NodeConfig declares none.
func AssignFile(pool []Rule, f model.ConfigFile) model.ConfigFile {
	if f.Disruption == "" && len(f.Units) == 0 {
		f.Disruption, f.Units = DecideDisruption(pool, []Change{fileChange(f, nil)}).ConfigDisruption()
	}
	return f
}

// AssignUnit returns the disruption of a unit. If its NodeConfig declares none, a rule of the
// pool decides; without one the unit restarts.
func AssignUnit(pool []Rule, name string, says model.Disruption) model.Disruption {
	if says != "" || closest(pool, Change{Kind: ChangeUnit, Name: name}) == nil {
		return says
	}
	d, _ := DecideDisruption(pool, []Change{{Kind: ChangeUnit, Name: name}}).ConfigDisruption()
	return d
}
