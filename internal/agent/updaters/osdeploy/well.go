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
)

// arrived: what is wanted is booted. The step is done when the node is well with it.
func (u *Updater) arrived(ctx context.Context, v *view) (updaters.Result, error) {
	b, err := kept(v.task)
	if err != nil {
		return updaters.Result{}, err
	}
	if b != nil && v.moved(b) {
		if r, err := u.well(ctx, v); err != nil || r.Reason != "" {
			return r, err
		}
	}
	return updaters.Result{Done: true}, errors.Join(marks{v.task, "back"}.clear(), u.record.settle(v), u.host.Forget())
}

// moved reports whether this update has booted something: else how the node is is not
// its doing, and there is nothing to go back to.
func (v *view) moved(b *before) bool {
	now := *v
	now.target = b.target(append(slices.Clone(b.Given), v.given.Given...))
	return !b.runs(&now)
}

// within is how long the node may take: as its configuration says, and no longer than
// leaves half of the step's time to go back.
func (v *view) within() time.Duration {
	limit := v.ready
	if d := time.Duration(v.task.Step.DeadlineSeconds) * time.Second / 2; d > 0 {
		limit = min(limit, d)
	}
	return limit
}

// unwell says why the node is not, "" if it is. While the API server is away the
// kubelet's own health is all that can be asked.
func (u *Updater) unwell(ctx context.Context) (says string, kubelet, away bool) {
	if err := u.host.KubeletHealthy(ctx); err != nil {
		return err.Error(), false, false
	}
	says, away = u.host.Ready(ctx)
	return says, true, away
}

// well waits until the node is well with what it has booted, for some seconds without a
// break; a Result without a reason says that it is. After its time the node goes back.
func (u *Updater) well(ctx context.Context, v *view) (updaters.Result, error) {
	spent, err := u.waited(v.marks)
	if err != nil {
		return updaters.Result{}, err
	}
	says, healthy, away := u.unwell(ctx)
	if err := ctx.Err(); err != nil {
		return updaters.Result{}, err // what was seen says nothing
	}
	now := u.now()
	well, kubelet := since(&u.wait.well, now, says == ""), since(&u.wait.kubelet, now, healthy)
	r := updaters.Going(v1alpha1.ReasonSettling, "the image is booted, and the node Ready; it is watched for %s", quiet)
	r.After = look
	switch {
	case says == "" && well >= quiet:
		return updaters.Result{}, nil
	case says == "":
		return r, nil
	case spent < v.within():
		r.Message = "the image is booted, and the node may take " + v.within().String() + " to be Ready: " + says
		return r, nil
	case away && kubelet >= quiet:
		return updaters.Result{}, nil
	}
	return u.giveUp(ctx, v, says)
}

// giveUp notes that the node goes back, and why; from then on it does.
func (u *Updater) giveUp(ctx context.Context, v *view, says string) (updaters.Result, error) {
	why := fmt.Sprintf("with %s the node was not Ready within %s: %s", text.ShortDigest(v.target.Digest), v.within(), says)
	if err := u.record.change(func(g *given) { g.Bad = &bad{v.target.Digest, why} }); err != nil {
		return updaters.Result{}, err
	}
	if err := v.marks.write("gaveup", why+"; "+u.host.KubeletSays(ctx)); err != nil {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.OSGivenUp)
	return updaters.Going(v1alpha1.ReasonUndoing, "the node goes back: %s", why), nil
}

// next goes on towards what is wanted, or on the way back if that was given up.
func (u *Updater) next(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	why, err := marks{t, "there"}.read("gaveup")
	switch {
	case err != nil:
		return updaters.Result{}, err
	case why != "":
		return u.giveBack(ctx, t, why)
	}
	return u.update(ctx, t)
}

// giveBack boots what was booted before the step, and ends in a failure that says why.
// It goes nowhere else: a node that does not come back there, or is not well there
// either, says so and stays.
func (u *Updater) giveBack(ctx context.Context, t updaters.Task, why string) (updaters.Result, error) {
	b, err := kept(t)
	if err != nil {
		return updaters.Result{}, err
	}
	if b == nil {
		return updaters.Fail(v1alpha1.ReasonOSUnhealthy, "it is not known what this node had booted before, and it stays: %s", why), nil
	}
	v, err := u.lookBack(ctx, t, b)
	if err != nil {
		return updaters.Result{}, err
	}
	if b.runs(v) && v.status.Stays() {
		return u.returned(ctx, v, b, why)
	}
	r, err := u.goBack(ctx, v, b)
	if r.Failed {
		r = updaters.Fail(v1alpha1.ReasonOSUnhealthy, "the node could not go back to %s (%s), and stays: %s", b.name(), r.Message, why)
	}
	return r, err
}

// goBack does the next thing that is missing until what was booted before runs, and
// boots next.
func (u *Updater) goBack(ctx context.Context, v *view, b *before) (updaters.Result, error) {
	if r := v.refused(); r.Failed || r.Reason != "" {
		return r, nil
	}
	if b.runs(v) {
		return u.discard(ctx, v), nil
	}
	r, err := u.leave(ctx, v, b)
	if r.Failed && r.Reason == v1alpha1.ReasonVersionReverted {
		return v.onceMore(r)
	}
	return r, err
}

// backTries is how often a restart is to bring the node back: what was staged for it
// does not outlive a power cut.
const backTries = 3

// onceMore begins the way back anew, if it may: r says what came of the last restart.
func (v *view) onceMore(r updaters.Result) (updaters.Result, error) {
	tries, err := v.marks.read("tries")
	if err != nil || len(tries)+1 >= backTries {
		return r, err
	}
	if err := errors.Join(v.marks.write("tries", tries+"|"), v.marks.remove("boot", "staged")); err != nil {
		return updaters.Result{}, err
	}
	return updaters.Going(v1alpha1.ReasonUndoing, "%s; it is tried again", r.Message), nil
}

// returned ends an attempt that went back. The node may take its time there too; that
// it is not well there either is said, and nothing more is done.
func (u *Updater) returned(ctx context.Context, v *view, b *before, why string) (updaters.Result, error) {
	err := u.record.change(func(g *given) { g.Given, g.Asked, g.Booted = b.Given, b.Asked, b.Booted })
	if err != nil {
		return updaters.Result{}, err
	}
	spent, err := u.waited(v.marks)
	if err != nil {
		return updaters.Result{}, err
	}
	says, _, away := u.unwell(ctx)
	if err := ctx.Err(); err != nil {
		return updaters.Result{}, err
	}
	switch {
	case says == "" || away:
		return updaters.Fail(v1alpha1.ReasonOSUnhealthy, "the node went back to %s: %s", b.name(), why), nil
	case spent < v.within():
		return updaters.Going(v1alpha1.ReasonUndoing, "the node went back to %s: %s", b.name(), says), nil
	}
	return updaters.Fail(v1alpha1.ReasonOSUnhealthy, "the node went back to %s, and is not Ready there either (%s): %s", b.name(), says, why), nil
}
