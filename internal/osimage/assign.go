package osimage

import "github.com/refit-dev/refit/internal/model"

// AssignFile says what a change of a file costs, if its NodeConfig does not.
func AssignFile(pool []Rule, f model.ConfigFile) model.ConfigFile {
	if f.Disruption == "" && len(f.Units) == 0 {
		f.Disruption, f.Units = DecideDisruption(pool, []Change{change(f, nil)}).As()
	}
	return f
}

// AssignUnit says what a change of a unit costs, if its NodeConfig does not: a rule
// of the pool, else its restart.
func AssignUnit(pool []Rule, name string, says model.Disruption) model.Disruption {
	if says != "" || closest(pool, Change{Kind: ChangeUnit, Name: name}) == nil {
		return says
	}
	d, _ := DecideDisruption(pool, []Change{{Kind: ChangeUnit, Name: name}}).As()
	return d
}
