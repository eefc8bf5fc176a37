package osdeploy

import (
	"context"
	"errors"
	"fmt"
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
	// Fetch is Image, and downloads the bytes if only a registry has them, so that Image
	// needs no registry afterwards. It removes what was downloaded for another image.
	Fetch(ctx context.Context, image string) (osdriver.Source, []string, error)
	// Forget removes the bytes of prepared images.
	Forget() error
	// Boot differs after every start of the machine, or of its user space.
	Boot() (string, error)
	// Reboot asks for an orderly restart and returns; soft restarts user space alone.
	Reboot(ctx context.Context, soft bool) error
	// KubeletHealthy asks the kubelet of this node directly.
	KubeletHealthy(ctx context.Context) error
	// Ready says why the API server does not report this node Ready, according to the
	// kubelet of this boot; "" if it does. unavailable: the API server does not answer,
	// and that may be its own fault.
	Ready(ctx context.Context) (problem string, unavailable bool)
	// KubeletState is the state of the kubelet's unit, and the end of its log, without
	// secrets.
	KubeletState(ctx context.Context) string
}

const (
	// rebootRetry is the time after which a machine that did not go down is asked again.
	rebootRetry = 3 * time.Minute
	// rebootLimit is how long that may take before the step fails.
	rebootLimit = 15 * time.Minute
	// stageTries is how often one process of the agent tries to stage; the pauses
	// between the tries double, from firstStagePause to maxStagePause.
	stageTries      = 7
	firstStagePause = 10 * time.Second
	maxStagePause   = time.Minute
)

// Updater is the step "os-image".
type Updater struct {
	host   Host
	record record
	now    func() time.Time
	// policy is the file with the host's signature policy, "" for none.
	policy string
	// selinux is the root of the host's files, "" to report nothing of its SELinux.
	selinux string
	// counter makes the boot loader leave an image that does not come up; nil: nothing does.
	counter *osdriver.BootCounter
	// agent keeps the agent over images that do not have it; nil: nothing does.
	agent AgentCarrier
	// What this process of the agent did about one attempt in one direction: firstRequest
	// and lastRequest are when it asked the machine to restart.
	attempt                   string
	firstRequest, lastRequest time.Time
	stageFailures             int
	wait                      readyWait

	// work is held by the run or the preparation that changes the host.
	work sync.Mutex

	mu      sync.Mutex // another goroutine reads the facts
	seen    cachedStatus
	problem string // why nothing could be prepared
}

// startAttempt resets the counts for another attempt, or the other direction, and drops the
// cached status of the host.
func (u *Updater) startAttempt(m marks) {
	if now := m.path(""); u.attempt != now {
		u.attempt, u.firstRequest, u.lastRequest, u.stageFailures, u.wait = now, time.Time{}, time.Time{}, 0, readyWait{}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen.ok = false
}

// New makes the updater; file is the agent's record of what it set on this machine.
func New(h Host, file string) *Updater { return &Updater{host: h, record: record(file), now: time.Now} }

// WithBootCounter makes the boot loader return to the former image if a new one does not come up.
func (u *Updater) WithBootCounter(c *osdriver.BootCounter) *Updater {
	u.counter = c
	return u
}

// Name is os-image.
func (u *Updater) Name() string { return "os-image" }

// RevertsItself reports that a step boots the former image if the node is not well.
func (u *Updater) RevertsItself() bool { return true }

// view is the input of one call.
type view struct {
	driver osdriver.Driver
	status osdriver.Status
	target osdriver.Target
	task   updaters.Task
	// marks are the files of this attempt.
	marks marks
	// prepared before the run, nil if nothing was.
	prepared *prepared
	recorded recordData
	// readyTime is how long the node may take to become Ready.
	readyTime time.Duration
}

func (u *Updater) inspectTask(ctx context.Context, t updaters.Task) (*view, error) {
	c, err := updaters.Config(t, u.host)
	if err != nil {
		return nil, err
	}
	if c.OS == nil {
		return nil, errors.New("the configuration has nothing for this node's OS")
	}
	v, r, err := u.inspectConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	v.task, v.marks, v.prepared, v.recorded = t, marks{t, directionThere}, r.Prepared, r
	same, err := v.marks.get("same")
	v.target.Same = append(strings.Fields(same), v.target.Same...)
	return v, err
}

// inspectConfig reads the host's status, and what a configuration wants of the host.
func (u *Updater) inspectConfig(ctx context.Context, c *model.NodeConfig) (v *view, r recordData, err error) {
	v = &view{readyTime: time.Duration(c.OS.ReadyWithin()) * time.Second}
	if v.driver, v.status, err = u.status(ctx); err != nil {
		return nil, r, err
	}
	if r, err = u.record.load(); err != nil {
		return nil, r, err
	}
	v.target = osdriver.Target{Image: c.OS.Image, Digest: c.OS.Digest(), Kargs: c.OS.KernelArguments, Drop: r.OwnKargs, SoftReboot: c.OS.SoftReboot}
	if v.target.Image == "" && v.status.Booted != nil { // only the arguments are wanted
		v.target.Image, v.target.Digest = v.status.Booted.Image, v.status.Booted.Digest
	}
	v.target.Same = r.aliasesOf(v.target.Digest)
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

// difference says what differs from the target, "" if nothing does.
func (v *view) difference() string {
	s, t := v.status, v.target
	missing, left := t.DiffKargs(s.Running)
	switch {
	case !t.IsImageOf(s.Booted):
		return "the OS is " + deploymentName(s.Booted) + ", not " + text.ShortDigest(t.Digest)
	case len(missing) > 0:
		return "the kernel runs without " + strings.Join(missing, " ")
	case len(left) > 0:
		return "the kernel still runs with " + strings.Join(left, " ")
	case !s.NextIsBooted():
		return "the next boot is into " + deploymentName(s.Next)
	}
	return ""
}

// deploymentName names a deployment for people.
func deploymentName(d *osdriver.Deployment) string {
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

// Observe reports whether the image is booted.
func (u *Updater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	v, err := u.inspectTask(ctx, t)
	if err != nil {
		return updaters.Observation{}, err
	}
	why := v.difference()
	return updaters.Observation{Done: why == "", Detail: why}, nil
}

// Update stages the image, restarts the machine, and observes it.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (r updaters.Result, err error) {
	return u.runExclusive(func() error { r, err = u.advanceOrRollBack(ctx, t); return err }, &r)
}

// runExclusive makes a call that changes the host, while no other does.
func (u *Updater) runExclusive(do func() error, r *updaters.Result) (updaters.Result, error) {
	err := u.exclusive(do)
	if errors.Is(err, errBusy) {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "%v", err), nil
	}
	return *r, err
}

func (u *Updater) advance(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	v, err := u.inspectTask(ctx, t)
	if err != nil {
		return updaters.Result{}, err
	}
	u.startAttempt(v.marks)
	if v.difference() == "" {
		return u.finishBooted(ctx, v)
	}
	if r := v.blocked(); r.Failed || r.Reason != "" {
		return r, nil
	}
	if err := errors.Join(savePreviousBoot(v), u.record.recordStock(v.status.Booted)); err != nil {
		return updaters.Result{}, err
	}
	over, err := u.bootEnded(v)
	if err != nil {
		return updaters.Result{}, err
	}
	if over {
		return u.endFailedBoot(ctx, v)
	}
	if r, err := u.stageWithAgent(ctx, v); err != nil || r.Failed || r.Reason != "" {
		return r, err
	}
	return u.activate(ctx, v)
}

// blocked says what keeps this host from being moved, or makes it wait.
func (v *view) blocked() updaters.Result {
	switch {
	case v.status.Unsupported != "":
		return updaters.Fail(v1alpha1.ReasonOSUnsupported, "%s", v.status.Unsupported)
	case v.status.Busy != "":
		return updaters.InProgress(v1alpha1.ReasonUpdating, "the host is changing its deployments already: %s", v.status.Busy)
	}
	return updaters.Result{}
}

// bootEnded reports whether the boot that had to end has ended. A restart of user space alone that
// came back to the old OS does not count: the machine restarts then.
func (u *Updater) bootEnded(v *view) (bool, error) {
	noted, err := v.marks.get("boot")
	if err != nil || noted == "" {
		return false, err
	}
	now, err := u.host.Boot()
	if err != nil || now == noted {
		return false, err
	}
	before, _, ok := strings.Cut(noted, " ")
	if after, _, _ := strings.Cut(now, " "); !ok || after != before {
		return true, nil
	}
	u.firstRequest, u.lastRequest = time.Time{}, time.Time{}
	return false, errors.Join(v.marks.set("whole", "the restart of user space did not change the OS"), v.marks.remove("boot"))
}

// stage prepares the next boot, unless it is prepared. A Result with a reason ends
// this call.
func (u *Updater) stage(ctx context.Context, v *view) (updaters.Result, error) {
	done, err := v.marks.get("staged")
	if err != nil || hasID(v.status.Next, done) {
		return updaters.Result{}, err
	}
	if taken, err := v.usePrepared(v.prepared, v.task.Step.Params[model.ParamConfig]); err != nil || taken {
		return updaters.Result{}, err
	}
	t := v.target
	if t.Source, t.Same, err = u.host.Image(ctx, t.Image); err == nil {
		if err = v.marks.set("same", strings.Join(t.Same, " ")); err != nil {
			return updaters.Result{}, err
		}
		if v.target = t; v.difference() == "" {
			return updaters.InProgress(v1alpha1.ReasonUpdating, "the image is booted already, under another digest of the same content"), nil
		}
		if err = u.record.addKargs(t.Kargs, v.status.Running); err != nil {
			return updaters.Result{}, err
		}
		err = stageOrDrop(ctx, v, t)
	}
	switch {
	case errors.Is(err, osdriver.ErrUnsupported):
		return updaters.Fail(v1alpha1.ReasonOSUnsupported, "%v", err), nil
	case err != nil:
		return u.retryLater(ctx, "the image could not be staged", err), nil
	}
	return v.checkStaged(ctx)
}

// stageOrDrop stages a target. It drops what a failed try left: tools stage first and then do more,
// and any restart would boot that.
func stageOrDrop(ctx context.Context, v *view, t osdriver.Target) error {
	err := v.driver.Stage(ctx, t)
	if err == nil || ctx.Err() != nil {
		return err
	}
	s, left := v.driver.Status(ctx)
	if left == nil && !s.NextIsBooted() && (v.status.Next == nil || s.Next.ID != v.status.Next.ID) {
		left = v.driver.Discard(ctx)
	}
	if left != nil {
		return fmt.Errorf("%w; what it staged may be the next boot: %w", err, left)
	}
	return err
}

// retryLater is the result of a failed try: another try, up to a limit.
func (u *Updater) retryLater(ctx context.Context, what string, err error) updaters.Result {
	if ctx.Err() != nil {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "%s", what)
	}
	if u.stageFailures++; u.stageFailures >= stageTries {
		return updaters.Fail(v1alpha1.ReasonOSNotStaged, "%s after %d tries: %v", what, stageTries, err)
	}
	r := updaters.InProgress(v1alpha1.ReasonUpdating, "%s; retrying: %v", what, err)
	r.After = min(firstStagePause<<(u.stageFailures-1), maxStagePause)
	return r
}

// checkStaged verifies what staging did: "unchanged" exits with 0 as well.
func (v *view) checkStaged(ctx context.Context) (r updaters.Result, err error) {
	if v.status, err = v.driver.Status(ctx); err != nil {
		return r, err
	}
	s, t := v.status, v.target
	missing, left := t.DiffKargs(s.Running)
	switch {
	case v.difference() == "": // what was in the way was dropped
		return updaters.InProgress(v1alpha1.ReasonUpdating, "the image is booted, and is the next boot again"), nil
	case t.IsImageOf(s.Next) && !s.NextIsBooted():
		failpoint.Here(failpoint.OSStaged)
		return r, v.marks.set("staged", s.Next.ID)
	case t.IsImageOf(s.Booted) && s.NextIsBooted():
		return updaters.Fail(v1alpha1.ReasonKernelArguments, "the image is booted already, without the wanted kernel arguments: missing %q, left over %q. This host (%s) reads them only from /%s of the image: build the image with them", missing, left, s.Driver, osdriver.KargsDir), nil
	}
	return updaters.Fail(v1alpha1.ReasonOSNotStaged, "the host reported %s as staged, but the next boot is into %s; nothing was restarted", text.ShortDigest(t.Digest), deploymentName(s.Next)), nil
}

// activate makes what is staged take effect. The boot that must end is recorded before, and boots are
// counted from then on, because a host may restart with it. An extension needs no restart.
func (u *Updater) activate(ctx context.Context, v *view) (updaters.Result, error) {
	first := false
	if v.driver.Name() != osdriver.Sysext {
		var err error
		if first, err = u.recordBoot(v); err != nil {
			return updaters.Result{}, err
		}
		if err := u.countBoots(ctx, v, false); err != nil {
			return u.retryLater(ctx, cannotCount, err), nil
		}
	}
	how, err := v.driver.Activate(ctx, v.target)
	if err != nil {
		r := u.retryLater(ctx, "what was staged could not be activated", err)
		if first && ctx.Err() == nil { // nothing restarts
			return r, errors.Join(v.marks.remove("boot"), u.counter.Disarm(ctx))
		}
		return r, nil
	}
	if how == osdriver.Live {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "the image is laid over /usr"), nil // the next call observes it
	}
	whole, err := v.marks.get("whole")
	if err != nil {
		return updaters.Result{}, err
	}
	return u.reboot(ctx, v, how == osdriver.BySoftReboot && whole == "")
}

// recordBoot records the boot that must end, once.
func (u *Updater) recordBoot(v *view) (first bool, err error) {
	noted, err := v.marks.get("boot")
	if err != nil || noted != "" {
		return false, err
	}
	if noted, err = u.host.Boot(); err == nil {
		err = v.marks.set("boot", noted)
	}
	failpoint.Here(failpoint.OSNoted)
	return true, err
}

// reboot asks the machine to end its boot.
func (u *Updater) reboot(ctx context.Context, v *view, soft bool) (updaters.Result, error) {
	if !u.firstRequest.IsZero() && u.now().Sub(u.firstRequest) > rebootLimit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the machine did not restart within %s of the request; `systemctl list-jobs` on the node shows what it waits for", rebootLimit), nil
	}
	r := updaters.InProgress(v1alpha1.ReasonUpdating, "the machine restarts into the image")
	if !u.lastRequest.IsZero() && u.now().Sub(u.lastRequest) < rebootRetry {
		return r, nil
	}
	soft = soft && u.lastRequest.IsZero() // a soft restart that did not happen is followed by a full one
	if err := u.countBoots(ctx, v, soft); err != nil {
		return u.retryLater(ctx, cannotCount, err), nil
	}
	return r, u.requestReboot(ctx, soft)
}

const cannotCount = "the boots of the image could not be counted"

// countBoots makes the boot loader count the boots of a new image. What was booted before has
// proved itself, and a restart of user space alone does not pass the boot loader.
func (u *Updater) countBoots(ctx context.Context, v *view, soft bool) error {
	if soft || v.marks.direction != directionThere {
		return u.counter.Disarm(ctx)
	}
	return u.counter.Arm(ctx)
}

func hasID(d *osdriver.Deployment, id string) bool { return d != nil && id != "" && d.ID == id }

// endFailedBoot ends a step whose image is not booted. If the boot loader gave it up, the image is
// no longer the default afterwards: the next boot would try it again.
func (u *Updater) endFailedBoot(ctx context.Context, v *view) (updaters.Result, error) {
	staged, err := v.marks.get("staged")
	if err != nil {
		return updaters.Result{}, err
	}
	why, err := u.counter.GaveUp(ctx)
	switch {
	case err != nil:
		return updaters.Result{}, err
	case why != "" && !hasID(v.status.Booted, staged):
		return u.giveUp(v, text.ShortDigest(v.target.Digest)+" did not start: "+why, "")
	}
	return v.explainFailedBoot(ctx), u.counter.Disarm(ctx)
}

// explainFailedBoot explains a restart after which the machine is not as wanted.
func (v *view) explainFailedBoot(ctx context.Context) updaters.Result {
	s, t := v.status, v.target
	staged, _ := v.marks.get("staged") // only decides between two sentences
	switch {
	case t.IsImageOf(s.Booted):
		return updaters.Fail(v1alpha1.ReasonKernelArguments, "the image was booted, but %s", v.difference())
	case hasID(s.Rollback, staged) || hasID(s.Next, staged): // and no older one of the same image
		return updaters.Fail(v1alpha1.ReasonOSRolledBack, "the node runs %s although %s was staged and is still there: it was rolled back on the node itself (boot menu, bootc rollback). Or the boot loader could not load its kernel. refit does not undo this; refit retry boots the image again", deploymentName(s.Booted), text.ShortDigest(t.Digest))
	}
	why := v.driver.Failure(ctx)
	if why == "" {
		why = "the journal of the previous boot says nothing (`journalctl -b -1 -u ostree-finalize-staged.service`); power may have been cut"
	}
	return updaters.Fail(v1alpha1.ReasonVersionReverted, "the node came up on %s again: what was staged was not activated at shutdown: %s", deploymentName(s.Booted), why)
}
