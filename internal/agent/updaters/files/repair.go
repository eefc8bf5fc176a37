package files

import (
	"context"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

// Repair restores what others changed since refit set it, if the configuration asks for
// that. It restores files whose change needs at most a reload, and units whose change needs
// at most a restart; all other drift waits for an update. dir is the agent's own directory,
// for what must still be reloaded after a crash. busy reports a run that has started: it
// does all this itself. did lists what was restored.
func (u *Updater) Repair(ctx context.Context, dir string, c *model.NodeConfig, busy func() bool) (did []string, err error) {
	if !c.RepairsDrift() {
		return nil, nil
	}
	u.work.Lock()
	defer u.work.Unlock()
	if busy() {
		return nil, nil
	}
	t := updaters.Task{Dir: dir, Step: v1alpha1.UpdateStep{ID: "repair"}}
	p, err := readPending(t)
	if err != nil {
		return nil, err
	}
	mine, err := u.driftedParts(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, f := range mine.Files {
		p.addFile(f)
		did = append(did, f.Path)
	}
	for _, w := range mine.Units {
		did = append(did, w.Name)
	}
	if len(did)+len(p.names()) == 0 {
		return nil, nil
	}
	if err := p.save(t); err != nil {
		return nil, err
	}
	if err := u.checkPayloads(mine.Files); err != nil {
		return nil, err
	}
	if err := u.writeFiles(mine.Files); err != nil {
		return nil, err
	}
	_, err = u.applyPending(ctx, t, mine, p)
	return did, err
}

// driftedParts are the files and units to restore.
func (u *Updater) driftedParts(ctx context.Context, c *model.NodeConfig) (*model.NodeConfig, error) {
	g, err := u.record.load()
	if err != nil {
		return nil, err
	}
	out := &model.NodeConfig{}
	for _, f := range c.Files {
		mild := f.Disruption == model.DisruptionNone || f.Disruption == model.DisruptionReload
		if mild && c.DriftOf(f.Drift) == model.DriftRepair && fileDrift(g, f, u.fileValue(g, f)) != "" {
			out.Files = append(out.Files, f)
		}
	}
	return out, u.addDriftedUnits(ctx, c, g, out)
}

// addDriftedUnits adds the units to restore.
func (u *Updater) addDriftedUnits(ctx context.Context, c *model.NodeConfig, g recordData, out *model.NodeConfig) error {
	mild := []model.Disruption{"", model.DisruptionNone, model.DisruptionReload, model.DisruptionRestart}
	for _, w := range c.Units {
		if c.DriftOf(w.Drift) != model.DriftRepair || g.Units[w.Name] != w.State || !slices.Contains(mild, w.Disruption) {
			continue
		}
		s, err := u.host.Unit(ctx, w.Name)
		if err != nil {
			return err
		}
		if unitDrifted(s, w.State) {
			out.Units = append(out.Units, w)
		}
	}
	return nil
}
