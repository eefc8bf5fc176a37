package programs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// Host is what the updater asks of the node.
type Host interface {
	servicerestart.Host
	// Program is the path of a program, "" if this node has none of that name.
	Program(ctx context.Context, name string) (string, error)
	// RuntimeReplaced reports whether the runtime's file is another one than the one that
	// runs.
	RuntimeReplaced(ctx context.Context) (bool, error)
	// PluginDir is where the network plugins are, "" if the distribution brings its own.
	PluginDir() string
}

// replaceable are the programs that may be replaced; true means that the runtime restarts.
var replaceable = map[string]bool{
	"containerd": true, "containerd-shim-runc-v2": false, "ctr": false, "crictl": false, "nerdctl": false,
	"crio": true, "conmon": false, "conmonrs": false, "pinns": false, "runc": false, "crun": false, "youki": false,
}

// PayloadPlugins is the payload with the network plugins: a tar of files, with or without
// gzip.
const PayloadPlugins = "cni-plugins"

// limit is how long a runtime may take to come back before the step fails.
const limit = 5 * time.Minute

// Updater is the step "programs".
type Updater struct {
	host    Host
	now     func() time.Time
	digests nodefiles.Digests
	tars    pluginTars
}

// New makes the updater.
func New(h Host) *Updater { return &Updater{host: h, now: time.Now} }

// Name is programs.
func (u *Updater) Name() string { return "programs" }

// wantedPrograms are the programs of a step, by name, with their digests. plugins is the
// digest of the payload with the plugins, "" if they are not part of the step.
func wantedPrograms(t updaters.Task) (names []string, digests map[string]string, plugins string) {
	digests = map[string]string{}
	for field, digest := range t.Step.Params {
		if field == model.FieldCNI {
			plugins = digest
		}
		if name, ok := strings.CutPrefix(field, model.FieldProgram); ok {
			names = append(names, name)
			digests[name] = digest
		}
	}
	sort.Strings(names)
	return names, digests, plugins
}

// errPermanent marks errors that do not go away by waiting.
var errPermanent = errors.New("this cannot be done")

// programPath is where a wanted program is.
func (u *Updater) programPath(ctx context.Context, name string) (string, error) {
	if _, ok := replaceable[name]; !ok {
		return "", fmt.Errorf("%w: refit does not replace the program %s", errPermanent, name)
	}
	path, err := u.host.Program(ctx, name)
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", fmt.Errorf("%w: there is no %s on this node any more", errPermanent, name)
	}
	return path, nil
}

// Observe compares every file, and asks whether the runtime runs the file in place.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	no := func(format string, args ...any) (updaters.Observation, error) {
		return updaters.Observation{Detail: fmt.Sprintf(format, args...)}, nil
	}
	names, digests, plugins := wantedPrograms(t)
	for _, name := range names {
		path, err := u.programPath(ctx, name)
		if err != nil {
			return updaters.Observation{}, err
		}
		if have, err := u.digests.DigestOf(path); err != nil || have != digests[name] {
			return no("%s is not the %s of the bundle", path, name)
		}
	}
	if plugins != "" {
		wrong, err := u.wrongPlugins(t)
		if err != nil {
			return updaters.Observation{}, err
		}
		if len(wrong) > 0 {
			return no("network plugin %s is not the bundle's", wrong[0].name)
		}
	}
	s, err := servicerestart.ReadState(t)
	if err != nil {
		return updaters.Observation{}, err
	}
	if !s.Done {
		return no("%s", s.Message)
	}
	if restartsRuntime(names) {
		return u.observeRuntime(ctx)
	}
	return updaters.Observation{Done: true}, nil
}

func (u *Updater) observeRuntime(ctx context.Context) (updaters.Observation, error) {
	replaced, err := u.host.RuntimeReplaced(ctx)
	if err != nil {
		return updaters.Observation{}, err
	}
	if replaced {
		return updaters.Observation{Detail: "the container runtime still runs its old program"}, nil
	}
	sick := u.host.Unready(ctx)
	return updaters.Observation{Done: sick == "", Detail: sick}, nil
}

func restartsRuntime(names []string) bool {
	for _, n := range names {
		if replaceable[n] {
			return true
		}
	}
	return false
}

// Update does the next thing that is missing.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	o, err := u.Observe(ctx, t)
	if err == nil && o.Done {
		s, _ := servicerestart.ReadState(t)
		return updaters.Result{Done: true, Message: s.Message}, nil
	}
	if err == nil {
		err = u.replaceFiles(ctx, t)
	}
	if errors.Is(err, errPermanent) {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%v", err), nil
	}
	if err != nil {
		return updaters.Result{}, err
	}
	s, err := servicerestart.AdvanceRestart(ctx, u.host, t, u.now())
	if err != nil {
		s.Message = err.Error()
	}
	if u.now().Sub(t.Started) > limit && !s.Done {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the container runtime is not back within %s: %s\n%s", limit, s.Message, u.host.Log(ctx)), nil
	}
	return updaters.InProgress(v1alpha1.ReasonUpdating, "%s", firstNonEmpty(s.Message, o.Detail)), nil
}

func firstNonEmpty(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// replaceFiles replaces all files. Running programs continue to run meanwhile.
func (u *Updater) replaceFiles(ctx context.Context, t updaters.Task) error {
	names, digests, plugins := wantedPrograms(t)
	if err := u.checkPayloads(ctx, t, names, digests, plugins); err != nil {
		return err
	}
	for _, name := range names {
		path, err := u.programPath(ctx, name)
		if err != nil {
			return err
		}
		if have, err := fsutil.Digest(path); err == nil && have == digests[name] {
			continue
		}
		if replaceable[name] { // recorded before the first change, or a kill would lose it
			if err := servicerestart.RequireRestart(ctx, u.host, t); err != nil {
				return err
			}
		}
		if _, err := updaters.Swap(t, name, path); err != nil {
			return err
		}
		failpoint.Here(failpoint.ProgramReplaced)
	}
	if plugins == "" {
		return nil
	}
	return u.replacePlugins(t)
}

// checkPayloads checks every payload before anything changes.
func (u *Updater) checkPayloads(ctx context.Context, t updaters.Task, names []string, digests map[string]string, plugins string) error {
	for _, name := range names {
		if _, err := u.programPath(ctx, name); err != nil {
			return err
		}
		p, err := t.Payload(name)
		if err != nil {
			return err
		}
		if p.Digest != digests[name] {
			return fmt.Errorf("%w: payload %s is %s, %s was planned", errPermanent, name, p.Digest, digests[name])
		}
		if err := checkMachine(p.Path); err != nil {
			return fmt.Errorf("payload %s: %w", name, err)
		}
	}
	if plugins == "" {
		return nil
	}
	p, err := t.Payload(PayloadPlugins)
	if err != nil {
		return err
	}
	if p.Digest != plugins {
		return fmt.Errorf("%w: payload %s is %s, %s was planned", errPermanent, PayloadPlugins, p.Digest, plugins)
	}
	_, err = u.tars.list(p)
	return err
}

// Undo restores the old files, and the runtime runs them.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	names, _, plugins := wantedPrograms(t)
	undo := t
	undo.Step.ID += "-undo" // a restart of its own
	for _, name := range names {
		path, err := u.programPath(ctx, name)
		if err != nil {
			return updaters.Result{}, err
		}
		if err := u.restoreProgram(ctx, t, undo, name, path); err != nil {
			return updaters.Result{}, err
		}
	}
	if plugins != "" {
		if err := u.restorePlugins(t); err != nil {
			return updaters.Result{}, err
		}
	}
	s, err := servicerestart.AdvanceRestart(ctx, u.host, undo, u.now())
	if err != nil || !s.Done {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "the old programs are restored: %s", s.Message), err
	}
	return updaters.Result{Done: true, Message: s.Message}, servicerestart.ClearRestart(t)
}

// restoreProgram restores one program if it differs from its backup.
func (u *Updater) restoreProgram(ctx context.Context, t, undo updaters.Task, name, path string) error {
	kept, err := fsutil.Digest(filepath.Join(t.Rollback, name))
	if err != nil {
		return nil //nolint:nilerr // no backup: it was never replaced
	}
	if have, err := fsutil.Digest(path); err == nil && have == kept {
		return nil
	}
	if replaceable[name] {
		if err := servicerestart.RequireRestart(ctx, u.host, undo); err != nil {
			return err
		}
	}
	_, err = updaters.Restore(t, name, path)
	return err
}

// Fields are the digests of the programs for which the node has payloads. A runtime that
// does not run the file in place has another value. find finds a payload of a bundle on this
// node.
func (u *Updater) Fields(ctx context.Context, payloads []model.PinSetPayload, find func(bundle, name string) (updaters.Payload, error)) map[string]string {
	out := map[string]string{}
	for _, p := range payloads {
		if p.Name == PayloadPlugins {
			if have := out[model.FieldCNI]; have == "" || have == otherPlugins {
				out[model.FieldCNI] = u.pluginsField(p, find)
			}
			continue
		}
		if v := u.programField(ctx, p.Name); v != "" {
			out[model.FieldProgram+p.Name] = v
		}
	}
	if out[model.FieldCNI] == "" {
		delete(out, model.FieldCNI)
	}
	return out
}

func (u *Updater) programField(ctx context.Context, name string) string {
	isRuntime, ok := replaceable[name]
	if !ok {
		return ""
	}
	path, err := u.host.Program(ctx, name)
	if err != nil || path == "" {
		return ""
	}
	digest, err := u.digests.DigestOf(path)
	if err != nil {
		return ""
	}
	if isRuntime {
		if replaced, err := u.host.RuntimeReplaced(ctx); err != nil || replaced {
			digest += " (not running)"
		}
	}
	return digest
}
