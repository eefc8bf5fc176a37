package files

import (
	"context"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

// Repair puts back what somebody changed since refit made it, where the
// configuration asks for that: files whose change needs no more than a reload, units
// whose change needs no more than a restart. All else comes back with an update. dir
// is the agent's own, for what must still be reloaded after a crash. busy reports a run
// that has begun, which sees to everything itself. did says what was put back.
func (u *Updater) Repair(ctx context.Context, dir string, c *model.NodeConfig, busy func() bool) (did []string, err error) {
	if c.Drift != model.DriftRepair {
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
	mine, err := u.changed(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, f := range mine.Files {
		p.add(f)
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
	if err := u.ready(mine.Files); err != nil {
		return nil, err
	}
	if err := u.write(mine.Files); err != nil {
		return nil, err
	}
	_, err = u.settle(ctx, t, mine, p)
	return did, err
}

// changed are the files and units that are to be put back.
func (u *Updater) changed(ctx context.Context, c *model.NodeConfig) (*model.NodeConfig, error) {
	g, err := u.record.read()
	if err != nil {
		return nil, err
	}
	out := &model.NodeConfig{}
	for _, f := range c.Files {
		mild := f.Disruption == model.DisruptionNone || f.Disruption == model.DisruptionReload
		if mild && drifted(g, f, u.value(g, f)) != "" {
			out.Files = append(out.Files, f)
		}
	}
	mild := []model.Disruption{"", model.DisruptionNone, model.DisruptionReload, model.DisruptionRestart}
	for _, w := range c.Units {
		if g.Units[w.Name] != w.State || !slices.Contains(mild, w.Disruption) {
			continue
		}
		s, err := u.host.Unit(ctx, w.Name)
		if err != nil {
			return nil, err
		}
		if strayed(s, w.State) {
			out.Units = append(out.Units, w)
		}
	}
	return out, nil
}
