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
	// Program is where a program is, "" if this node has none of that name.
	Program(ctx context.Context, name string) (string, error)
	// RuntimeReplaced reports whether the runtime's file is another one than it
	// was started from.
	RuntimeReplaced(ctx context.Context) (bool, error)
	// PluginDir is where the network plugins are.
	PluginDir() string
}

// known are the programs that may be replaced; the runtimes among them restart.
var known = map[string]bool{
	"containerd": true, "containerd-shim-runc-v2": false, "ctr": false, "crictl": false, "nerdctl": false,
	"crio": true, "conmon": false, "conmonrs": false, "pinns": false, "runc": false, "crun": false, "youki": false,
}

// PayloadPlugins is the payload with the network plugins: a tar, compressed by
// gzip or not, of files.
const PayloadPlugins = "cni-plugins"

// limit is after how long a runtime that does not come back has failed.
const limit = 5 * time.Minute

// Updater is the step "programs".
type Updater struct {
	host    Host
	now     func() time.Time
	digests nodefiles.Digests
	tars    tars
}

// New makes the updater.
func New(h Host) *Updater { return &Updater{host: h, now: time.Now} }

// Name is programs.
func (u *Updater) Name() string { return "programs" }

// wanted are the programs of a step, by name, with their digests; plugins is the
// digest of the payload with the plugins, "" if they are not part of it.
func wanted(t updaters.Task) (names []string, digests map[string]string, plugins string) {
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

// errWrong does not go away by waiting.
var errWrong = errors.New("this cannot be done")

// place is where a wanted program is.
func (u *Updater) place(ctx context.Context, name string) (string, error) {
	if _, ok := known[name]; !ok {
		return "", fmt.Errorf("%w: %s is no program that refit replaces", errWrong, name)
	}
	path, err := u.host.Program(ctx, name)
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", fmt.Errorf("%w: there is no %s on this node any more", errWrong, name)
	}
	return path, nil
}

// Observe compares every file, and asks whether the runtime runs what is there.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	no := func(format string, args ...any) (updaters.Observation, error) {
		return updaters.Observation{Detail: fmt.Sprintf(format, args...)}, nil
	}
	names, digests, plugins := wanted(t)
	for _, name := range names {
		path, err := u.place(ctx, name)
		if err != nil {
			return updaters.Observation{}, err
		}
		if have, err := u.digests.Of(path); err != nil || have != digests[name] {
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
	if !s.Over {
		return no("%s", s.Says)
	}
	if restarts(names) {
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

func restarts(names []string) bool {
	for _, n := range names {
		if known[n] {
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
		return updaters.Result{Done: true, Message: s.Says}, nil
	}
	if err == nil {
		err = u.replace(ctx, t)
	}
	if errors.Is(err, errWrong) {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "%v", err), nil
	}
	if err != nil {
		return updaters.Result{}, err
	}
	s, err := servicerestart.AdvanceRestart(ctx, u.host, t, u.now())
	if err != nil {
		s.Says = err.Error()
	}
	if u.now().Sub(t.Started) > limit && !s.Over {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the container runtime is not back within %s: %s\n%s", limit, s.Says, u.host.Log(ctx)), nil
	}
	return updaters.Going(v1alpha1.ReasonUpdating, "%s", or(s.Says, o.Detail)), nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// replace puts all files in their places. What runs goes on running meanwhile.
func (u *Updater) replace(ctx context.Context, t updaters.Task) error {
	names, digests, plugins := wanted(t)
	if err := u.check(ctx, t, names, digests, plugins); err != nil {
		return err
	}
	for _, name := range names {
		path, err := u.place(ctx, name)
		if err != nil {
			return err
		}
		if have, err := fsutil.Digest(path); err == nil && have == digests[name] {
			continue
		}
		if known[name] { // noted before the first change, or a kill would forget it
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

// check looks at every payload before anything is changed.
func (u *Updater) check(ctx context.Context, t updaters.Task, names []string, digests map[string]string, plugins string) error {
	for _, name := range names {
		if _, err := u.place(ctx, name); err != nil {
			return err
		}
		p, err := t.Payload(name)
		if err != nil {
			return err
		}
		if p.Digest != digests[name] {
			return fmt.Errorf("%w: payload %s is %s, %s was planned", errWrong, name, p.Digest, digests[name])
		}
		if err := rightMachine(p.Path); err != nil {
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
		return fmt.Errorf("%w: payload %s is %s, %s was planned", errWrong, PayloadPlugins, p.Digest, plugins)
	}
	_, err = u.tars.list(p)
	return err
}

// Undo puts the old files back and has the runtime run them.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	names, _, plugins := wanted(t)
	undo := t
	undo.Step.ID += "-undo" // a restart of its own
	for _, name := range names {
		path, err := u.place(ctx, name)
		if err != nil {
			return updaters.Result{}, err
		}
		if err := u.putBack(ctx, t, undo, name, path); err != nil {
			return updaters.Result{}, err
		}
	}
	if plugins != "" {
		if err := u.restorePlugins(t); err != nil {
			return updaters.Result{}, err
		}
	}
	s, err := servicerestart.AdvanceRestart(ctx, u.host, undo, u.now())
	if err != nil || !s.Over {
		return updaters.Going(v1alpha1.ReasonUpdating, "the old programs are back: %s", s.Says), err
	}
	return updaters.Result{Done: true, Message: s.Says}, servicerestart.ClearRestart(t)
}

// putBack restores one program if it is another one than was kept.
func (u *Updater) putBack(ctx context.Context, t, undo updaters.Task, name, path string) error {
	kept, err := fsutil.Digest(filepath.Join(t.Rollback, name))
	if err != nil {
		return nil //nolint:nilerr // nothing was kept: it was never replaced
	}
	if have, err := fsutil.Digest(path); err == nil && have == kept {
		return nil
	}
	if known[name] {
		if err := servicerestart.RequireRestart(ctx, u.host, undo); err != nil {
			return err
		}
	}
	_, err = updaters.Restore(t, name, path)
	return err
}

// Fields are the digests of the programs, of those the node is to hold a payload
// for. A runtime that does not run what is there has another value. find finds a
// payload of a bundle, if it is here.
func (u *Updater) Fields(ctx context.Context, payloads []model.HeldPayload, find func(bundle, name string) (updaters.Payload, error)) map[string]string {
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
	isRuntime, ok := known[name]
	if !ok {
		return ""
	}
	path, err := u.host.Program(ctx, name)
	if err != nil || path == "" {
		return ""
	}
	digest, err := u.digests.Of(path)
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
