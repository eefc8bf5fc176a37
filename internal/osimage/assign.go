package osimage

import "github.com/refit-dev/refit/internal/model"

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
