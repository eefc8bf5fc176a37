package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// refresh is a unit that has to read its configuration again.
type refresh struct {
	Unit    string `json:"unit"`
	Restart bool   `json:"restart,omitempty"`
}

// pending is what must still happen because of files that were written. It is on
// disk before the first of them is.
type pending struct {
	Reload  bool      `json:"reload,omitempty"`
	Refresh []refresh `json:"refresh,omitempty"`
}

func pendingFile(t updaters.Task) string { return filepath.Join(t.Dir, t.Step.ID+".pending.json") }

func readPending(t updaters.Task) (*pending, error) {
	p := &pending{}
	_, err := fsutil.ReadJSON(pendingFile(t), p)
	return p, err
}

func (p *pending) save(t updaters.Task) error { return fsutil.WriteJSON(pendingFile(t), p) }

func (p *pending) names() []string {
	var out []string
	if p.Reload {
		out = append(out, "systemd")
	}
	for _, r := range p.Refresh {
		out = append(out, r.Unit)
	}
	return out
}

// add notes what a change of a file asks for.
func (p *pending) add(f model.ConfigFile) {
	p.Reload = p.Reload || model.UnitOf(f.Path) != ""
	for _, name := range f.Units {
		i := slices.IndexFunc(p.Refresh, func(r refresh) bool { return r.Unit == name })
		if i < 0 {
			p.Refresh = append(p.Refresh, refresh{Unit: name})
			i = len(p.Refresh) - 1
		}
		p.Refresh[i].Restart = p.Refresh[i].Restart || f.Disruption != model.DisruptionReload
	}
}

// drop forgets a unit that has read its configuration.
func (p *pending) drop(t updaters.Task, unit string) error {
	n := len(p.Refresh)
	if p.Refresh = slices.DeleteFunc(p.Refresh, func(x refresh) bool { return x.Unit == unit }); len(p.Refresh) == n {
		return nil
	}
	return p.save(t)
}

// before is how the node was before the step.
type before struct {
	Files []keptFile `json:"files,omitempty"`
	Units []keptUnit `json:"units,omitempty"`
	// Refresh are the units that have to read the files again when they are back.
	After pending `json:"after"`
}

type keptFile struct {
	Path string `json:"path"`
	// Exists is false for a file that was not there.
	Exists bool   `json:"exists,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	UID    uint32 `json:"uid,omitempty"`
	GID    uint32 `json:"gid,omitempty"`
	Data   []byte `json:"data,omitempty"`
	// Ours is the digest of what the step writes there: another one is somebody else's.
	Ours string `json:"ours"`
	// Given is the value that an earlier step had given it.
	Given string `json:"given,omitempty"`
}

type keptUnit struct {
	Name string `json:"name"`
	// State in the model's words; one that is in none of them is left alone.
	State string `json:"state"`
	Given string `json:"given,omitempty"`
}

// prepare writes down how the node is and what will have to happen, once, before
// anything is changed.
func (u *Updater) prepare(ctx context.Context, t updaters.Task, c *model.NodeConfig, wrong []model.ConfigFile) error {
	if err := u.keep(ctx, t, c); err != nil {
		return err
	}
	if len(wrong) == 0 {
		return nil
	}
	p, err := readPending(t)
	if err != nil {
		return err
	}
	later := u.awaited(c)
	for _, f := range wrong {
		if f.Stale && later[model.Twin(f.Path)] {
			continue // what runs goes on with what it read; the restart into the image reads it
		}
		p.add(f)
	}
	if err := p.save(t); err != nil {
		return err
	}
	failpoint.Here(failpoint.FilesKept)
	return nil
}

// keep writes down the whole configuration's paths and units, not only the wrong
// ones: a retry may find others wrong than the first try.
func (u *Updater) keep(ctx context.Context, t updaters.Task, c *model.NodeConfig) error {
	path := filepath.Join(u.keptDir(t), "before.json")
	if _, err := os.Stat(path); err == nil {
		return nil // of an earlier try: that is the older one
	}
	var b before
	g, err := u.record.read()
	if err != nil {
		return err
	}
	for _, f := range c.Files {
		if f.InImage {
			continue
		}
		k, err := u.keptOf(g, f)
		if errors.Is(err, errUntouched) {
			continue
		}
		if err != nil {
			return err
		}
		b.After.add(f)
		b.Files = append(b.Files, k)
	}
	for _, w := range c.Units {
		s, err := u.host.Unit(ctx, w.Name)
		if err != nil {
			return err
		}
		b.Units = append(b.Units, keptUnit{w.Name, unitState(s), g.Units[w.Name]})
	}
	return fsutil.WriteJSON(path, &b)
}

// keptOf is how a file is now.
func (u *Updater) keptOf(g given, f model.ConfigFile) (k keptFile, err error) {
	k = keptFile{Path: f.Path, Given: g.Files[f.Path].Value}
	if k.Ours, err = u.gives(g, f); err != nil {
		return k, err
	}
	data, s, err := u.fs.Read(f.Path)
	if err != nil {
		return k, err
	}
	if s.Exists && !s.Regular {
		return k, fmt.Errorf("%s: %w (%s); name what it points to, or remove it", f.Path, errNotAFile, describe(s.Link))
	}
	if s.Exists {
		k.Exists, k.Mode, k.UID, k.GID, k.Data = true, s.Mode, s.UID, s.GID, data
	}
	return k, nil
}

func describe(link string) string {
	if link == "" {
		return "a directory or device"
	}
	return "a symbolic link to " + link
}

// Undo puts back what was there. It may be called any number of times.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	u.work.Lock()
	defer u.work.Unlock()
	var b before
	if _, err := fsutil.ReadJSON(filepath.Join(u.keptDir(t), "before.json"), &b); err != nil {
		return updaters.Result{}, err
	}
	// What did not run before is stopped while its unit file is still there.
	if err := u.restoreUnits(ctx, b, model.UnitDisabled, model.UnitMasked); err != nil {
		return updaters.Result{}, err
	}
	foreign, err := u.restoreFiles(b)
	if err != nil {
		return updaters.Result{}, err
	}
	if err := u.refreshBack(ctx, b); err != nil {
		return updaters.Result{}, err
	}
	if err := os.Remove(pendingFile(t)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return updaters.Result{}, err
	}
	if err := u.record.back(b); err != nil {
		return updaters.Result{}, err
	}
	r := updaters.Result{Done: true}
	if len(foreign) > 0 {
		sort.Strings(foreign)
		r.Message = fmt.Sprintf("left as somebody else changed it since: %v", foreign)
	}
	return r, nil
}

func (u *Updater) restoreFiles(b before) (foreign []string, err error) {
	for _, k := range b.Files {
		theirs, err := u.restore(k)
		if err != nil {
			return nil, err
		}
		if theirs {
			foreign = append(foreign, k.Path)
		}
	}
	return foreign, nil
}

// refreshBack has everybody read the files that are back.
func (u *Updater) refreshBack(ctx context.Context, b before) error {
	if b.After.Reload {
		if err := u.host.ReloadUnits(ctx); err != nil {
			return err
		}
	}
	if err := u.restoreUnits(ctx, b, model.UnitEnabled); err != nil {
		return err
	}
	for _, r := range b.After.Refresh {
		if err := u.host.RefreshUnit(ctx, r.Unit, r.Restart); err != nil {
			return err
		}
	}
	return nil
}

// restoreUnits brings back the units that were in one of the states.
func (u *Updater) restoreUnits(ctx context.Context, b before, states ...string) error {
	for _, k := range b.Units {
		if !slices.Contains(states, k.State) {
			continue
		}
		s, err := u.host.Unit(ctx, k.Name)
		if err != nil {
			return err
		}
		if unitState(s) == k.State {
			continue
		}
		if err := u.host.SetUnit(ctx, k.Name, k.State); err != nil {
			return err
		}
	}
	return nil
}

// restore puts one file back; theirs is true if it is neither ours nor what was
// there, so that it is not touched.
func (u *Updater) restore(k keptFile) (theirs bool, err error) {
	s, err := u.fs.Look(k.Path)
	switch {
	case err != nil:
		return false, err
	case k.is(s):
		return false, nil
	case s.Exists && s.Digest != k.Ours && s.Digest != model.DigestOf(k.Data):
		return true, nil
	case !k.Exists:
		return false, u.fs.Remove(k.Path)
	}
	return false, u.fs.Write(k.Path, k.Data, k.Mode, int(k.UID), int(k.GID))
}

// is reports whether a path is as it was.
func (k keptFile) is(s nodefiles.State) bool {
	if !k.Exists {
		return !s.Exists
	}
	return s.Regular && s.Digest == model.DigestOf(k.Data) && s.Mode == k.Mode && s.UID == k.UID && s.GID == k.GID
}
