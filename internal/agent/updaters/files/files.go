package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// Host is what the updater asks of the node.
type Host interface {
	updaters.Configs
	Units
	// FindPayload finds a file that this node has of any bundle, by the payload's name
	// and digest; updaters.ErrNoPayload if there is none.
	FindPayload(name, digest string) (updaters.Payload, error)
}

// Units are the node's systemd units.
type Units interface {
	Unit(ctx context.Context, name string) (systemd.Unit, error)
	// SetUnit brings a unit into a state of the model: enabled and started,
	// disabled and stopped, masked and stopped.
	SetUnit(ctx context.Context, name, state string) error
	// ReloadUnits has systemd read all unit files again.
	ReloadUnits(ctx context.Context) error
	// RefreshUnit makes a running unit reload its configuration. The unit restarts if
	// restart is set or it cannot reload.
	RefreshUnit(ctx context.Context, name string, restart bool) error
	// StartUnit starts a unit and waits until it runs.
	StartUnit(ctx context.Context, name string) error
}

// limit is how long a unit may take to come up before the step fails.
const limit = 2 * time.Minute

// Updater is the step "files".
type Updater struct {
	host   Host
	fs     nodefiles.FS
	record record
	now    func() time.Time
	// work is held by the run or the repair that changes the node.
	work sync.Mutex
}

// New makes the updater; paths are below root, empty for the node's own. file is the
// agent's record of what it wrote on this node.
func New(h Host, root, file string) *Updater {
	return &Updater{host: h, fs: nodefiles.FS{Root: root, Refuse: model.ProtectedPath}, record: record(file), now: time.Now}
}

// Name is files.
func (u *Updater) Name() string { return "files" }

// Observe compares every file and unit.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	c, err := updaters.Config(t, u.host)
	if err != nil {
		return updaters.Observation{}, err
	}
	wrong, err := u.wrongFiles(c)
	if err != nil {
		return updaters.Observation{}, err
	}
	p, err := readPending(t)
	if err != nil {
		return updaters.Observation{}, err
	}
	units, err := u.wrongUnits(ctx, c)
	if err != nil {
		return updaters.Observation{}, err
	}
	var says []string
	for _, f := range wrong {
		says = append(says, f.Path+" is not as wanted")
	}
	for _, n := range p.names() {
		says = append(says, n+" has not read its new configuration")
	}
	for _, w := range units {
		says = append(says, w.detail)
	}
	if len(says) == 0 {
		return updaters.Observation{Done: true}, nil
	}
	return updaters.Observation{Detail: strings.Join(says, "; ")}, nil
}

// wrongFiles are the files that are not as the configuration wants them.
func (u *Updater) wrongFiles(c *model.NodeConfig) ([]model.ConfigFile, error) {
	var out []model.ConfigFile
	g, err := u.record.load()
	if err != nil {
		return nil, err
	}
	for _, f := range c.Files {
		if f.InImage {
			continue // the OS image brings it; it is not written here
		}
		s, err := u.fs.Inspect(f.Path)
		if err != nil {
			return nil, err
		}
		wrong := !isAsWanted(f, s) && (!f.Stale || u.isOwn(g, f.Path, s))
		if f.AsImage {
			if wrong, err = u.overwroteImage(g, f.Path, s); err != nil {
				return nil, err
			}
		}
		if wrong {
			out = append(out, f)
		}
	}
	return out, nil
}

// isAsWanted reports whether a file is as the configuration wants it. An owner that this
// node does not know never is; writing the file says why.
func isAsWanted(f model.ConfigFile, s nodefiles.State) bool {
	if f.Absent {
		return !s.Exists
	}
	uid, err1 := nodefiles.UserID(f.Owner)
	gid, err2 := nodefiles.GroupID(f.Group)
	return err1 == nil && err2 == nil && s.Regular && s.Digest == f.Content() && s.Mode == f.Mode &&
		int(s.UID) == uid && int(s.GID) == gid
}

type wrongUnit struct {
	model.ConfigUnit
	detail string
}

// wrongUnits are those in another state than the wanted one, except units whose file comes
// with an image that is not booted yet.
func (u *Updater) wrongUnits(ctx context.Context, c *model.NodeConfig) ([]wrongUnit, error) {
	var out []wrongUnit
	later := u.pendingImageFiles(c)
	for _, w := range c.Units {
		if later.hasUnit(w.Name) {
			continue
		}
		s, err := u.host.Unit(ctx, w.Name)
		if err != nil {
			return nil, err
		}
		if is := unitState(s); is != w.State {
			out = append(out, wrongUnit{w, fmt.Sprintf("unit %s is %s, %s is wanted", w.Name, is, w.State)})
		}
	}
	return out, nil
}

// fileStates are systemd's words for the states of the model.
var fileStates = map[string][]string{
	model.UnitEnabled:  {"enabled", "enabled-runtime", "static"}, // static: nothing can enable it
	model.UnitDisabled: {"disabled", "static", ""},
	model.UnitMasked:   {"masked", "masked-runtime"},
}

// isUnitUp reports whether a unit runs. A oneshot is up if it ran and succeeded.
func isUnitUp(s systemd.Unit) bool {
	return s.Active == "active" || s.Active == "reloading" || s.Oneshot && s.Ran && s.Active == "inactive" && s.Result == "success"
}

// unitDrifted reports whether a unit is in another state than the wanted one, and stays in
// it. A unit between two states has not drifted: its state is not final.
func unitDrifted(s systemd.Unit, want string) bool {
	return unitState(s) != want && s.Active != "activating" && s.Active != "deactivating"
}

// unitState is the state in the model's words, or in systemd's words if the model has none.
func unitState(s systemd.Unit) string {
	runs, stopped := isUnitUp(s), s.Active == "inactive" || s.Active == "failed"
	for _, state := range []string{model.UnitMasked, model.UnitEnabled, model.UnitDisabled} {
		active := stopped
		if state == model.UnitEnabled {
			active = runs
		}
		if active && slices.Contains(fileStates[state], s.File) {
			return state
		}
	}
	file := s.File
	if file == "" {
		file = "not there"
	}
	return file + " and " + s.Active
}

// Update does what is missing: back up, write, reload, set.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	u.work.Lock()
	defer u.work.Unlock()
	c, no, ok := updaters.LoadConfig(t, u.host)
	if !ok {
		return no, nil
	}
	wrong, err := u.wrongFiles(c)
	if err == nil {
		err = u.checkPayloads(wrong)
	}
	if err == nil {
		err = u.prepare(ctx, t, c, wrong)
	}
	if err == nil {
		err = u.writeFiles(wrong)
	}
	if isPermanent(err) {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%v", err), nil
	}
	if err != nil {
		return updaters.Result{}, err
	}
	return u.applyChanges(ctx, t, c)
}

// isPermanent reports errors that do not go away by waiting.
func isPermanent(err error) bool {
	return errors.Is(err, nodefiles.ErrRefused) || errors.Is(err, nodefiles.ErrTooLarge) || errors.Is(err, errNotAFile) || errors.Is(err, errOwner) || errors.Is(err, updaters.ErrNoPayload)
}

var (
	errNotAFile = errors.New("it is no regular file")
	errOwner    = errors.New("this node does not know its owner")
)

// writeFiles writes the wrong files.
func (u *Updater) writeFiles(wrong []model.ConfigFile) error {
	for _, f := range wrong {
		if err := u.record.startFile(f); err != nil {
			return err
		}
		if f.AsImage {
			if err := u.restoreImageFile(f.Path); err != nil {
				return err
			}
			continue
		}
		if f.Absent {
			if err := u.fs.Remove(f.Path); err != nil {
				return err
			}
			continue
		}
		uid, err := nodefiles.UserID(f.Owner)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", f.Path, errOwner, err)
		}
		gid, err := nodefiles.GroupID(f.Group)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", f.Path, errOwner, err)
		}
		data, err := u.readContent(f)
		if err != nil {
			return err
		}
		if err := u.fs.Write(f.Path, data, f.Mode, uid, gid); err != nil {
			return err
		}
		failpoint.Here(failpoint.FilesWritten)
	}
	return nil
}

// checkPayloads finds every payload before anything changes.
func (u *Updater) checkPayloads(wrong []model.ConfigFile) error {
	for _, f := range wrong {
		if f.Payload == "" {
			continue
		}
		if _, err := u.host.FindPayload(f.Payload, f.Digest); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return nil
}

// readContent returns the bytes of a file; those of a payload are compared while they are
// read.
func (u *Updater) readContent(f model.ConfigFile) ([]byte, error) {
	if f.Payload == "" {
		return f.Data, nil
	}
	p, err := u.host.FindPayload(f.Payload, f.Digest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	r, err := os.Open(p.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: payload %s: %w", f.Path, f.Payload, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, model.MaxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: payload %s: %w", f.Path, f.Payload, err)
	case len(b) > model.MaxFile:
		return nil, fmt.Errorf("%s: payload %s: %w", f.Path, f.Payload, nodefiles.ErrTooLarge)
	case model.DigestOf(b) != f.Digest: // it is corrupt, and is fetched again
		return nil, fmt.Errorf("%s: payload %s no longer matches its digest", f.Path, f.Payload)
	}
	return b, nil
}

// applyChanges makes systemd and the units load what was written, one after another.
func (u *Updater) applyChanges(ctx context.Context, t updaters.Task, c *model.NodeConfig) (updaters.Result, error) {
	p, err := readPending(t)
	if err != nil {
		return updaters.Result{}, err
	}
	late := u.now().Sub(t.Started) > limit
	problem, err := u.applyPending(ctx, t, c, p)
	switch {
	case err != nil && late:
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%v", err), nil
	case err != nil:
		return updaters.InProgress(v1alpha1.ReasonUpdating, "retrying: %v", err), nil
	case problem != "" && late:
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%s after %s; `journalctl -u UNIT` on the node shows why", problem, limit), nil
	case problem != "":
		return updaters.InProgress(v1alpha1.ReasonUpdating, "%s", problem), nil
	}
	o, err := u.Observe(ctx, t)
	if err != nil || !o.Done {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "%s", o.Detail), err
	}
	return updaters.Result{Done: true}, u.record.finish(c, u.pendingImageFiles(c))
}

// applyPending does what is pending and sets the units; problem says what is still
// missing.
func (u *Updater) applyPending(ctx context.Context, t updaters.Task, c *model.NodeConfig, p *pending) (problem string, err error) {
	if p.Reload {
		if err := u.host.ReloadUnits(ctx); err != nil {
			return "", err
		}
		p.Reload = false
		if err := p.save(t); err != nil {
			return "", err
		}
	}
	units, err := u.wrongUnits(ctx, c)
	if err != nil {
		return "", err
	}
	for _, w := range units {
		problem = w.detail
		if err := u.setUnit(ctx, t, w.ConfigUnit, p); err != nil {
			return "", err
		}
	}
	for _, n := range slices.Clone(p.Refresh) {
		if err := u.host.RefreshUnit(ctx, n.Unit, n.Restart); err != nil {
			return "", err
		}
		if err := p.removeUnit(t, n.Unit); err != nil {
			return "", err
		}
		failpoint.Here(failpoint.UnitRefreshed)
	}
	return problem, nil
}

// setUnit brings a unit into its state.
func (u *Updater) setUnit(ctx context.Context, t updaters.Task, w model.ConfigUnit, p *pending) error {
	if err := u.record.startUnit(w); err != nil {
		return err
	}
	if err := u.host.SetUnit(ctx, w.Name, w.State); err != nil {
		return err
	}
	failpoint.Here(failpoint.UnitSet)
	return p.removeUnit(t, w.Name) // it was started, or stopped, just now
}

// ownerName is the wanted name if it has this number, else the number.
func ownerName(name string, id uint32, number func(string) (int, error)) string {
	if n, err := number(name); err == nil && n == int(id) {
		return name
	}
	return fmt.Sprint(id)
}

func (u *Updater) backupDir(t updaters.Task) string { return filepath.Join(t.Rollback, t.Step.ID) }
