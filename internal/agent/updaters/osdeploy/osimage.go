package osdeploy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// Host is the node as this updater needs it.
type Host interface {
	updaters.Configs
	// Driver finds out how this node's OS is moved.
	Driver(ctx context.Context) (osdriver.Driver, error)
	// Image finds where the bytes of repository@digest are, the node's own store
	// first, and the digests of the same content.
	Image(ctx context.Context, image string) (osdriver.Source, []string, error)
	// Fetch is Image, and brings the bytes to the node if only a registry has them, so
	// that Image needs none afterwards. What was fetched for another image goes.
	Fetch(ctx context.Context, image string) (osdriver.Source, []string, error)
	// Forget lets go the bytes of images that lie ready.
	Forget() error
	// Boot is another one after every start of the machine, or of its user space.
	Boot() (string, error)
	// Reboot asks for an orderly restart and returns; soft is one of user space alone.
	Reboot(ctx context.Context, soft bool) error
	// KubeletHealthy asks the kubelet of this node itself.
	KubeletHealthy(ctx context.Context) error
	// Ready says why the API server does not call this node Ready, by what the kubelet
	// of this boot has told it; "" if it does. away: it does not answer, and that may
	// be its own fault.
	Ready(ctx context.Context) (says string, away bool)
	// KubeletSays is the state of the kubelet's unit, and the end of its log, without
	// secrets.
	KubeletSays(ctx context.Context) string
}

const (
	// again is after how long a machine that did not go down is told once more.
	again = 3 * time.Minute
	// limit is after how long that has failed.
	limit = 15 * time.Minute
	// tries is how often staging is tried in one life of the agent; the pauses
	// between them double, from firstPause to longPause.
	tries      = 7
	firstPause = 10 * time.Second
	longPause  = time.Minute
)

// Updater is the step "os-image".
type Updater struct {
	host   Host
	record record
	now    func() time.Time
	// What this life of the agent did about one attempt in one direction: told is when
	// the machine was asked to restart first, asked when last.
	doing       string
	told, asked time.Time
	failed      int
	wait        wait

	// work is held by whoever changes the host: a run, or what prepares one.
	work sync.Mutex

	mu      sync.Mutex // the facts are asked for by another goroutine
	seen    seen
	problem string // why nothing could be prepared
}

// turn begins to count anew for another attempt, or the other direction, and forgets
// what the host said before.
func (u *Updater) turn(m marks) {
	if now := m.path(""); u.doing != now {
		u.doing, u.told, u.asked, u.failed, u.wait = now, time.Time{}, time.Time{}, 0, wait{}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen.ok = false
}

// New makes the updater; file is the agent's own, for what it gave this machine.
func New(h Host, file string) *Updater { return &Updater{host: h, record: record(file), now: time.Now} }

// Name is os-image.
func (u *Updater) Name() string { return "os-image" }

// view is what one call looks at.
type view struct {
	driver osdriver.Driver
	status osdriver.Status
	target osdriver.Target
	task   updaters.Task
	// marks are the files of this run, with this word in their names.
	marks marks
	// prepared before the run, nil if nothing was.
	prepared *prepared
	given    given
	// ready is how long the node may take to be so.
	ready time.Duration
}

func (u *Updater) look(ctx context.Context, t updaters.Task) (*view, error) {
	c, err := updaters.Config(t, u.host)
	if err != nil {
		return nil, err
	}
	if c.OS == nil {
		return nil, errors.New("the configuration wants nothing of this node's OS")
	}
	v, r, err := u.toward(ctx, c)
	if err != nil {
		return nil, err
	}
	v.task, v.marks, v.prepared, v.given = t, marks{t, "there"}, r.Prepared, r
	same, err := v.marks.read("same")
	v.target.Same = append(strings.Fields(same), v.target.Same...)
	return v, err
}

// toward is the host, and what a configuration wants of it.
func (u *Updater) toward(ctx context.Context, c *model.NodeConfig) (v *view, r given, err error) {
	v = &view{ready: time.Duration(c.OS.ReadyWithin()) * time.Second}
	if v.driver, v.status, err = u.status(ctx); err != nil {
		return nil, r, err
	}
	if r, err = u.record.read(); err != nil {
		return nil, r, err
	}
	v.target = osdriver.Target{Image: c.OS.Image, Digest: c.OS.Digest(), Kargs: c.OS.KernelArguments, Drop: r.Given, SoftReboot: c.OS.SoftReboot}
	if v.target.Image == "" && v.status.Booted != nil { // only the arguments are wanted
		v.target.Image, v.target.Digest = v.status.Booted.Image, v.status.Booted.Digest
	}
	v.target.Same = r.sameAs(v.target.Digest)
	return v, r, nil
}

func (u *Updater) status(ctx context.Context) (osdriver.Driver, osdriver.Status, error) {
	d, err := u.host.Driver(ctx)
	if err != nil {
		return nil, osdriver.Status{}, err
	}
	s, err := d.Status(ctx)
	return d, s, err
}

// wrong says what is not as the target, "" if all is.
func (v *view) wrong() string {
	s, t := v.status, v.target
	missing, left := t.Lacking(s.Running)
	switch {
	case !t.On(s.Booted):
		return "the OS is " + name(s.Booted) + ", not " + text.ShortDigest(t.Digest)
	case len(missing) > 0:
		return "the kernel runs without " + strings.Join(missing, " ")
	case len(left) > 0:
		return "the kernel still runs with " + strings.Join(left, " ")
	case !s.Stays():
		return "the next boot is into " + name(s.Next)
	}
	return ""
}

// name of a deployment for people.
func name(d *osdriver.Deployment) string {
	switch {
	case d == nil:
		return "not known"
	case d.Digest != "":
		return text.ShortDigest(d.Digest)
	case d.ID == "" || d.ID == "none":
		return "without an image"
	}
	return "the deployment " + text.ShortDigest(d.ID)
}

// Observe sees whether the image is booted.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	v, err := u.look(ctx, t)
	if err != nil {
		return updaters.Observation{}, err
	}
	why := v.wrong()
	return updaters.Observation{Done: why == "", Detail: why}, nil
}

// Update stages the image, restarts the machine and looks.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (r updaters.Result, err error) {
	return u.one(func() error { r, err = u.next(ctx, t); return err }, &r)
}

// one is a call that changes the host, when no other does.
func (u *Updater) one(do func() error, r *updaters.Result) (updaters.Result, error) {
	err := u.alone(do)
	if errors.Is(err, errAtWork) {
		return updaters.Going(v1alpha1.ReasonUpdating, "%v", err), nil
	}
	return *r, err
}

func (u *Updater) update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	v, err := u.look(ctx, t)
	if err != nil {
		return updaters.Result{}, err
	}
	u.turn(v.marks)
	if v.wrong() == "" {
		return u.arrived(ctx, v)
	}
	if r := v.refused(); r.Failed || r.Reason != "" {
		return r, nil
	}
	if err := keep(v); err != nil {
		return updaters.Result{}, err
	}
	over, err := u.bootOver(v)
	if err != nil {
		return updaters.Result{}, err
	}
	if over {
		return v.cameBack(ctx), nil
	}
	if r, err := u.stage(ctx, v); err != nil || r.Failed || r.Reason != "" {
		return r, err
	}
	return u.enter(ctx, v)
}

// refused is what keeps this host from being moved, or makes it wait.
func (v *view) refused() updaters.Result {
	switch {
	case v.status.Unsupported != "":
		return updaters.Fail(v1alpha1.ReasonOSUnsupported, "%s", v.status.Unsupported)
	case v.status.Busy != "":
		return updaters.Going(v1alpha1.ReasonUpdating, "the host is changing its deployments already: %s", v.status.Busy)
	}
	return updaters.Result{}
}

// bootOver reports whether the boot that was to end has ended.
func (u *Updater) bootOver(v *view) (bool, error) {
	noted, err := v.marks.read("boot")
	if err != nil || noted == "" {
		return false, err
	}
	now, err := u.host.Boot()
	return now != noted, err
}

// stage prepares the next boot, unless it is prepared. A Result with a reason ends
// this call.
func (u *Updater) stage(ctx context.Context, v *view) (updaters.Result, error) {
	done, err := v.marks.read("staged")
	if err != nil || is(v.status.Next, done) {
		return updaters.Result{}, err
	}
	if taken, err := v.take(v.prepared, v.task.Step.Params[model.ParamConfig]); err != nil || taken {
		return updaters.Result{}, err
	}
	t := v.target
	if t.Source, t.Same, err = u.host.Image(ctx, t.Image); err == nil {
		if err = v.marks.write("same", strings.Join(t.Same, " ")); err != nil {
			return updaters.Result{}, err
		}
		if v.target = t; v.wrong() == "" {
			return updaters.Going(v1alpha1.ReasonUpdating, "the image is booted already, under another digest of the same content"), nil
		}
		if err = u.record.add(t.Kargs, v.status.Running); err != nil {
			return updaters.Result{}, err
		}
		err = v.driver.Stage(ctx, t)
	}
	switch {
	case errors.Is(err, osdriver.ErrUnsupported):
		return updaters.Fail(v1alpha1.ReasonOSUnsupported, "%v", err), nil
	case err != nil:
		return u.later(ctx, "the image could not be staged", err), nil
	}
	return v.isStaged(ctx)
}

// later tries again, up to a limit.
func (u *Updater) later(ctx context.Context, what string, err error) updaters.Result {
	if ctx.Err() != nil {
		return updaters.Going(v1alpha1.ReasonUpdating, "%s", what)
	}
	if u.failed++; u.failed >= tries {
		return updaters.Fail(v1alpha1.ReasonOSNotStaged, "%s after %d tries: %v", what, tries, err)
	}
	r := updaters.Going(v1alpha1.ReasonUpdating, "%s and is tried again: %v", what, err)
	r.After = min(firstPause<<(u.failed-1), longPause)
	return r
}

// isStaged reads back what staging did: "unchanged" ends with 0 as well.
func (v *view) isStaged(ctx context.Context) (r updaters.Result, err error) {
	if v.status, err = v.driver.Status(ctx); err != nil {
		return r, err
	}
	s, t := v.status, v.target
	missing, left := t.Lacking(s.Running)
	switch {
	case v.wrong() == "": // what was in the way was dropped
		return updaters.Going(v1alpha1.ReasonUpdating, "the image is booted, and is the next boot again"), nil
	case t.On(s.Next) && !s.Stays():
		failpoint.Here(failpoint.OSStaged)
		return r, v.marks.write("staged", s.Next.ID)
	case t.On(s.Booted) && s.Stays():
		return updaters.Fail(v1alpha1.ReasonKernelArguments, "the image is booted already and does not bring the kernel arguments: missing %q, left over %q; this host (%s) takes them from /%s of the image alone, so the image has to be built with them", missing, left, s.Driver, osdriver.KargsDir), nil
	}
	return updaters.Fail(v1alpha1.ReasonOSNotStaged, "the host said that it staged %s, and the next boot is into %s; nothing was restarted", text.ShortDigest(t.Digest), name(s.Next)), nil
}

// enter has what is staged come into use.
func (u *Updater) enter(ctx context.Context, v *view) (updaters.Result, error) {
	how, err := v.driver.Activate(ctx, v.target)
	if err != nil {
		return u.later(ctx, "what was staged could not be let go", err), nil
	}
	if how == osdriver.Live {
		return updaters.Going(v1alpha1.ReasonUpdating, "the image is laid over /usr"), nil // the next call looks
	}
	return u.restart(ctx, v, how == osdriver.BySoftReboot)
}

// restart notes the boot that is to end and has the machine end it.
func (u *Updater) restart(ctx context.Context, v *view, soft bool) (updaters.Result, error) {
	if !u.told.IsZero() && u.now().Sub(u.told) > limit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the machine was told to restart and has not within %s; `systemctl list-jobs` on the node says what it waits for", limit), nil
	}
	noted, err := v.marks.read("boot")
	if err == nil && noted == "" {
		if noted, err = u.host.Boot(); err == nil {
			err = v.marks.write("boot", noted)
		}
		failpoint.Here(failpoint.OSNoted)
	}
	if err != nil {
		return updaters.Result{}, err
	}
	r := updaters.Going(v1alpha1.ReasonUpdating, "the machine restarts into the image")
	if !u.asked.IsZero() && u.now().Sub(u.asked) < again {
		return r, nil
	}
	return r, u.ask(ctx, soft && u.asked.IsZero()) // one that did not happen is followed by a whole one
}

func is(d *osdriver.Deployment, id string) bool { return d != nil && id != "" && d.ID == id }

// cameBack says what became of a restart after which not all is as it should be.
func (v *view) cameBack(ctx context.Context) updaters.Result {
	s, t := v.status, v.target
	staged, _ := v.marks.read("staged") // only decides between two sentences
	switch {
	case t.On(s.Booted):
		return updaters.Fail(v1alpha1.ReasonKernelArguments, "the image was booted, and %s", v.wrong())
	case is(s.Rollback, staged) || is(s.Next, staged): // and no older one of the same image
		return updaters.Fail(v1alpha1.ReasonOSRolledBack, "the node runs %s although %s was made ready and is still there: it was taken back on the node itself (boot menu, bootc rollback). This is not undone; refit retry boots the image again", name(s.Booted), text.ShortDigest(t.Digest))
	}
	why := v.driver.Failure(ctx)
	if why == "" {
		why = "the journal of the boot before says nothing (`journalctl -b -1 -u ostree-finalize-staged.service`); power may have been cut"
	}
	return updaters.Fail(v1alpha1.ReasonVersionReverted, "the node came back on %s: what was staged did not come into its place at shutdown: %s", name(s.Booted), why)
}
