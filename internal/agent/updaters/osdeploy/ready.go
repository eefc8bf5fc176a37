package osdeploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// finishBooted ends the step when the node is Ready with the image that is booted.
func (u *Updater) finishBooted(ctx context.Context, v *view) (updaters.Result, error) {
	b, err := loadPreviousBoot(v.task)
	if err != nil {
		return updaters.Result{}, err
	}
	if b != nil && v.bootedAnother(b) {
		if r, err := u.awaitReady(ctx, v); err != nil || r.Reason != "" {
			return r, err
		}
	}
	return updaters.Result{Done: true}, errors.Join(u.counter.Disarm(ctx), marks{v.task, directionBack}.clear(), u.record.recordBooted(v, u.now()), u.host.Forget())
}

// bootedAnother reports whether this update has booted something. If not, the node's health
// is not its effect, and there is nothing to roll back to.
func (v *view) bootedAnother(b *previousBoot) bool {
	now := *v
	now.target = b.target(append(slices.Clone(b.OwnKargs), v.recorded.OwnKargs...))
	return !b.isRunning(&now)
}

// readyLimit is how long the node may take: as its configuration says, but no longer than
// leaves half of the step's time for a rollback.
func (v *view) readyLimit() time.Duration {
	limit := v.readyTime
	if d := time.Duration(v.task.Step.DeadlineSeconds) * time.Second / 2; d > 0 {
		limit = min(limit, d)
	}
	return limit
}

// readyProblem says why the node is not Ready, "" if it is. While the API server is
// unavailable, only the kubelet itself can be asked.
func (u *Updater) readyProblem(ctx context.Context) (problem string, kubelet, unavailable bool) {
	if err := u.host.KubeletHealthy(ctx); err != nil {
		return err.Error(), false, false
	}
	problem, unavailable = u.host.Ready(ctx)
	return problem, true, unavailable
}

// awaitReady waits until the node is Ready with what it has booted, for some seconds without
// a break; a Result without a reason means that it is. After its time the node rolls back.
func (u *Updater) awaitReady(ctx context.Context, v *view) (updaters.Result, error) {
	spent, err := u.timeWaited(v.marks)
	if err != nil {
		return updaters.Result{}, err
	}
	says, healthy, away := u.readyProblem(ctx)
	if err := ctx.Err(); err != nil {
		return updaters.Result{}, err // the observation was interrupted
	}
	now := u.now()
	well, kubelet := streak(&u.wait.readySince, now, says == ""), streak(&u.wait.kubeletSince, now, healthy)
	r := updaters.InProgress(v1alpha1.ReasonSettling, "the image is booted and the node is Ready; observing it for %s", readyStreak)
	r.After = observeInterval
	switch {
	case says == "" && well >= readyStreak:
		return updaters.Result{}, nil
	case says == "":
		return r, nil
	case spent < v.readyLimit():
		r.Message = "the image is booted, and the node may take " + v.readyLimit().String() + " to be Ready: " + says
		return r, nil
	case away && kubelet >= readyStreak:
		return updaters.Result{}, nil
	}
	return u.giveUpImage(ctx, v, says)
}

// giveUpImage gives up an image that is booted, and with which the node is not Ready.
func (u *Updater) giveUpImage(ctx context.Context, v *view, says string) (updaters.Result, error) {
	why := fmt.Sprintf("with %s the node was not Ready within %s: %s", text.ShortDigest(v.target.Digest), v.readyLimit(), says)
	return u.giveUp(v, why, "; "+u.host.KubeletState(ctx))
}

// giveUp records that the node rolls back, and why; from then on it does.
func (u *Updater) giveUp(v *view, why, details string) (updaters.Result, error) {
	if err := u.record.update(func(g *recordData) {
		g.Failed = &failedImage{v.target.Digest, why}
		g.addHistory(u.now(), imageName(v.target.Image, v.target.Digest), model.OSFailed)
	}); err != nil {
		return updaters.Result{}, err
	}
	if err := v.marks.set("gaveup", why+details); err != nil {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.OSGivenUp)
	return updaters.InProgress(v1alpha1.ReasonUndoing, "the node rolls back: %s", why), nil
}

// advanceOrRollBack advances the step, or its rollback if the image was given up.
func (u *Updater) advanceOrRollBack(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	why, err := marks{t, directionThere}.get("gaveup")
	switch {
	case err != nil:
		return updaters.Result{}, err
	case why != "":
		return u.rollBack(ctx, t, why)
	}
	return u.advance(ctx, t)
}

// rollBack boots what was booted before the step, and ends in a failure that says why. It
// boots nothing else: a node that does not come up there, or is not Ready there either,
// reports that and stays.
func (u *Updater) rollBack(ctx context.Context, t updaters.Task, why string) (updaters.Result, error) {
	b, err := loadPreviousBoot(t)
	if err != nil {
		return updaters.Result{}, err
	}
	if b == nil {
		return updaters.Fail(v1alpha1.ReasonOSUnhealthy, "what this node had booted before is unknown, so it stays as it is: %s", why), nil
	}
	v, err := u.inspectUndo(ctx, t, b)
	if err != nil {
		return updaters.Result{}, err
	}
	if b.isRunning(v) && v.status.NextIsBooted() {
		return u.finishRollback(ctx, v, b, why)
	}
	r, err := u.advanceRollback(ctx, v, b)
	if r.Failed {
		r = updaters.Fail(v1alpha1.ReasonOSUnhealthy, "the node could not roll back to %s (%s), and stays as it is: %s", b.displayName(), r.Message, why)
	}
	return r, err
}

// advanceRollback does the next part of a rollback, until what was booted before runs, and
// boots next.
func (u *Updater) advanceRollback(ctx context.Context, v *view, b *previousBoot) (updaters.Result, error) {
	if r := v.blocked(); r.Failed || r.Reason != "" {
		return r, nil
	}
	if b.isRunning(v) {
		return u.discard(ctx, v), nil
	}
	r, err := u.bootPrevious(ctx, v, b)
	if r.Failed && r.Reason == v1alpha1.ReasonVersionReverted {
		return v.retryRollback(r)
	}
	return r, err
}

// rollbackTries is how often a restart may fail to bring the node back: a power cut loses
// what was staged for it.
const rollbackTries = 3

// retryRollback starts the rollback anew, if a try is left: r is the result of the last one.
func (v *view) retryRollback(r updaters.Result) (updaters.Result, error) {
	tries, err := v.marks.get("tries")
	if err != nil || len(tries)+1 >= rollbackTries {
		return r, err
	}
	if err := errors.Join(v.marks.set("tries", tries+"|"), v.marks.remove("boot", "staged")); err != nil {
		return updaters.Result{}, err
	}
	return updaters.InProgress(v1alpha1.ReasonUndoing, "%s; retrying", r.Message), nil
}

// finishRollback ends an attempt that rolled back. The node may take its time there too. If
// it is not Ready there either, the result says so, and nothing more happens.
func (u *Updater) finishRollback(ctx context.Context, v *view, b *previousBoot, why string) (updaters.Result, error) {
	err := u.record.update(func(g *recordData) {
		g.OwnKargs, g.RequestedDigest, g.BootedDigest = b.OwnKargs, b.RequestedDigest, b.BootedDigest
		g.addReturn(u.now(), b)
	})
	if err = errors.Join(err, u.counter.Disarm(ctx)); err != nil {
		return updaters.Result{}, err
	}
	spent, err := u.timeWaited(v.marks)
	if err != nil {
		return updaters.Result{}, err
	}
	says, _, away := u.readyProblem(ctx)
	if err := ctx.Err(); err != nil {
		return updaters.Result{}, err
	}
	switch {
	case says == "" || away:
		return updaters.Fail(v1alpha1.ReasonOSUnhealthy, "the node rolled back to %s: %s", b.displayName(), why), nil
	case spent < v.readyLimit():
		return updaters.InProgress(v1alpha1.ReasonUndoing, "the node rolled back to %s: %s", b.displayName(), says), nil
	}
	return updaters.Fail(v1alpha1.ReasonOSUnhealthy, "the node rolled back to %s, and is not Ready there either (%s): %s", b.displayName(), says, why), nil
}
