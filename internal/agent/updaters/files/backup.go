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

// refresh is a unit that must reload its configuration, or restart.
type refresh struct {
	Unit    string `json:"unit"`
	Restart bool   `json:"restart,omitempty"`
	// Ran: it ran before the step. An undo starts it if it has failed since.
	Ran bool `json:"ran,omitempty"`
}

// pending is what must still happen because of written files. It is on disk before the
// first of them is.
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

// addFile records what a change of a file requires.
func (p *pending) addFile(f model.ConfigFile) {
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

// removeUnit removes a unit that has loaded its configuration.
func (p *pending) removeUnit(t updaters.Task, unit string) error {
	n := len(p.Refresh)
	if p.Refresh = slices.DeleteFunc(p.Refresh, func(x refresh) bool { return x.Unit == unit }); len(p.Refresh) == n {
		return nil
	}
	return p.save(t)
}

// backup is the node's state before the step.
type backup struct {
	Files []fileBackup `json:"files,omitempty"`
	Units []unitBackup `json:"units,omitempty"`
	// Pending are the units that must load the files again when they are restored.
	Pending pending `json:"after"`
}

type fileBackup struct {
	Path string `json:"path"`
	// Exists is false for a file that was missing.
	Exists bool   `json:"exists,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	UID    uint32 `json:"uid,omitempty"`
	GID    uint32 `json:"gid,omitempty"`
	Data   []byte `json:"data,omitempty"`
	// Ours is the digest of what the step writes there: others wrote any other content.
	Ours string `json:"ours"`
	// Recorded is the value that an earlier step had recorded for it.
	Recorded string `json:"given,omitempty"`
}

type unitBackup struct {
	Name string `json:"name"`
	// State in the model's words; refit does not restore any other state.
	State    string `json:"state"`
	Recorded string `json:"given,omitempty"`
}

// prepare records the node's state and what must happen afterwards, once, before anything
// changes.
func (u *Updater) prepare(ctx context.Context, t updaters.Task, c *model.NodeConfig, wrong []model.ConfigFile) error {
	if err := u.backUp(ctx, t, c); err != nil {
		return err
	}
	if len(wrong) == 0 {
		return nil
	}
	p, err := readPending(t)
	if err != nil {
		return err
	}
	later := u.pendingImageFiles(c)
	for _, f := range wrong {
		if f.Stale && later[model.ImageUnitPath(f.Path)] {
			continue // a running service keeps what it has loaded until the restart into the image
		}
		p.addFile(f)
	}
	if err := p.save(t); err != nil {
		return err
	}
	failpoint.Here(failpoint.FilesKept)
	return nil
}

// backUp covers all paths and units of the configuration, not only those that differ: a
// retry may find other differences than the first try.
func (u *Updater) backUp(ctx context.Context, t updaters.Task, c *model.NodeConfig) error {
	path := filepath.Join(u.backupDir(t), "before.json")
	if _, err := os.Stat(path); err == nil {
		return nil // an earlier try made it: that is the older state
	}
	var b backup
	g, err := u.record.load()
	if err != nil {
		return err
	}
	for _, f := range c.Files {
		if f.InImage {
			continue
		}
		k, err := u.backUpFile(g, f)
		if errors.Is(err, errNotOverwritten) {
			continue
		}
		if err != nil {
			return err
		}
		b.Pending.addFile(f)
		b.Files = append(b.Files, k)
	}
	for i := range b.Pending.Refresh {
		r := &b.Pending.Refresh[i]
		s, err := u.host.Unit(ctx, r.Unit)
		if err != nil {
			return err
		}
		r.Ran = isUnitUp(s)
	}
	for _, w := range c.Units {
		s, err := u.host.Unit(ctx, w.Name)
		if err != nil {
			return err
		}
		b.Units = append(b.Units, unitBackup{w.Name, unitState(s), g.Units[w.Name]})
	}
	return fsutil.WriteJSON(path, &b)
}

// backUpFile is the current state of a file.
func (u *Updater) backUpFile(g recordData, f model.ConfigFile) (k fileBackup, err error) {
	k = fileBackup{Path: f.Path, Recorded: g.Files[f.Path].Value}
	if k.Ours, err = u.digestToWrite(g, f); err != nil {
		return k, err
	}
	data, s, err := u.fs.Read(f.Path)
	if err != nil {
		return k, err
	}
	if s.Exists && !s.Regular {
		return k, fmt.Errorf("%s: %w (%s); name what it points to, or remove it", f.Path, errNotAFile, describeLink(s.Link))
	}
	if s.Exists {
		k.Exists, k.Mode, k.UID, k.GID, k.Data = true, s.Mode, s.UID, s.GID, data
	}
	return k, nil
}

func describeLink(link string) string {
	if link == "" {
		return "a directory or device"
	}
	return "a symbolic link to " + link
}

// Undo restores what was there. It may be called any number of times.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	u.work.Lock()
	defer u.work.Unlock()
	var b backup
	if _, err := fsutil.ReadJSON(filepath.Join(u.backupDir(t), "before.json"), &b); err != nil {
		return updaters.Result{}, err
	}
	// A unit that did not run before is stopped while its unit file is still there.
	if err := u.restoreUnits(ctx, b, model.UnitDisabled, model.UnitMasked); err != nil {
		return updaters.Result{}, err
	}
	foreign, err := u.restoreFiles(b)
	if err != nil {
		return updaters.Result{}, err
	}
	if err := u.refreshRestored(ctx, b); err != nil {
		return updaters.Result{}, err
	}
	if err := os.Remove(pendingFile(t)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return updaters.Result{}, err
	}
	if err := u.record.undo(b); err != nil {
		return updaters.Result{}, err
	}
	r := updaters.Result{Done: true}
	if len(foreign) > 0 {
		sort.Strings(foreign)
		r.Message = fmt.Sprintf("not restored, because others have changed it since: %v", foreign)
	}
	return r, nil
}

func (u *Updater) restoreFiles(b backup) (foreign []string, err error) {
	for _, k := range b.Files {
		theirs, err := u.restoreFile(k)
		if err != nil {
			return nil, err
		}
		if theirs {
			foreign = append(foreign, k.Path)
		}
	}
	return foreign, nil
}

// refreshRestored lets systemd and the units load the restored files.
func (u *Updater) refreshRestored(ctx context.Context, b backup) error {
	if b.Pending.Reload {
		if err := u.host.ReloadUnits(ctx); err != nil {
			return err
		}
	}
	if err := u.restoreUnits(ctx, b, model.UnitEnabled); err != nil {
		return err
	}
	for _, r := range b.Pending.Refresh {
		if err := u.host.RefreshUnit(ctx, r.Unit, r.Restart); err != nil {
			return err
		}
		if err := u.startFailed(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// startFailed starts a unit that ran before the step and has failed with the step's files:
// systemd neither reloads nor restarts one that does not run.
func (u *Updater) startFailed(ctx context.Context, r refresh) error {
	if !r.Ran {
		return nil
	}
	s, err := u.host.Unit(ctx, r.Unit)
	if err != nil || s.Active != "failed" || slices.Contains(fileStates[model.UnitMasked], s.File) {
		return err
	}
	return u.host.StartUnit(ctx, r.Unit)
}

// restoreUnits restores the units that were in one of the states.
func (u *Updater) restoreUnits(ctx context.Context, b backup, states ...string) error {
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

// restoreFile restores one file. theirs is true if it is neither refit's nor what was there,
// so that it is not touched.
func (u *Updater) restoreFile(k fileBackup) (theirs bool, err error) {
	s, err := u.fs.Inspect(k.Path)
	switch {
	case err != nil:
		return false, err
	case k.matches(s):
		return false, nil
	case s.Exists && s.Digest != k.Ours && s.Digest != model.DigestOf(k.Data):
		return true, nil
	case !k.Exists:
		return false, u.fs.Remove(k.Path)
	}
	return false, u.fs.Write(k.Path, k.Data, k.Mode, int(k.UID), int(k.GID))
}

// matches reports whether a path is as it was.
func (k fileBackup) matches(s nodefiles.State) bool {
	if !k.Exists {
		return !s.Exists
	}
	return s.Regular && s.Digest == model.DigestOf(k.Data) && s.Mode == k.Mode && s.UID == k.UID && s.GID == k.GID
}
