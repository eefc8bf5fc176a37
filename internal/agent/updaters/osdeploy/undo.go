package osdeploy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

// Undo boots what was booted before. A node that was already rolled back by others stays
// where it is.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (r updaters.Result, err error) {
	return u.runExclusive(func() error { r, err = u.undo(ctx, t); return err }, &r)
}

func (u *Updater) undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	b, err := loadPreviousBoot(t)
	if err != nil || b == nil {
		return updaters.Result{Done: err == nil}, err
	}
	v, err := u.inspectUndo(ctx, t, b)
	if err != nil {
		return updaters.Result{}, err
	}
	if no := v.blocked(); no.Failed || no.Reason != "" {
		return no, nil
	}
	if b.isRunning(v) {
		return u.finishUndo(ctx, v, b)
	}
	return u.bootPrevious(ctx, v, b)
}

// inspectUndo is inspectTask for an undo.
func (u *Updater) inspectUndo(ctx context.Context, t updaters.Task, b *previousBoot) (v *view, err error) {
	v = &view{task: t, marks: marks{t, directionBack}, readyTime: model.OSReadySeconds * time.Second}
	if v.driver, v.status, err = u.status(ctx); err != nil {
		return nil, err
	}
	r, err := u.record.load()
	if err != nil {
		return nil, err
	}
	u.startAttempt(v.marks)
	v.target = b.target(append(slices.Clone(b.OwnKargs), r.OwnKargs...))
	return v, nil
}

// bootPrevious restarts into what was booted before.
func (u *Updater) bootPrevious(ctx context.Context, v *view, b *previousBoot) (updaters.Result, error) {
	over, err := u.bootEnded(v)
	if err != nil {
		return updaters.Result{}, err
	}
	if over {
		return updaters.Fail(v1alpha1.ReasonVersionReverted, "the machine was restarted to roll back to %s but runs %s: %s", b.displayName(), deploymentName(v.status.Booted), v.driver.Failure(ctx)), nil
	}
	if r, err := u.stagePrevious(ctx, v, b); err != nil || r.Failed || r.Reason != "" {
		return r, err
	}
	return u.activate(ctx, v)
}

// target is what to roll back to. Of refit's arguments it wants those that the kernel had
// then.
func (b *previousBoot) target(given []string) osdriver.Target {
	t := osdriver.Target{Image: b.Image, Digest: b.Digest}
	for _, a := range given {
		switch {
		case slices.Contains(t.Kargs, a) || slices.Contains(t.Drop, a):
		case slices.Contains(b.Kargs, a):
			t.Kargs = append(t.Kargs, a)
		default:
			t.Drop = append(t.Drop, a)
		}
	}
	return t
}

// isRunning reports whether the node runs what it did before, with its arguments.
func (b *previousBoot) isRunning(v *view) bool {
	missing, left := v.target.DiffKargs(v.status.Running)
	return b.matches(v.status.Booted) && len(missing)+len(left) == 0
}

func (b *previousBoot) displayName() string {
	return deploymentName(&osdriver.Deployment{ID: b.ID, Digest: b.Digest})
}

// finishUndo drops what is staged: the running deployment is to stay.
func (u *Updater) finishUndo(ctx context.Context, v *view, b *previousBoot) (updaters.Result, error) {
	if !v.status.NextIsBooted() {
		return u.discard(ctx, v), nil
	}
	return updaters.Result{Done: true}, errors.Join(u.counter.Disarm(ctx), marks{v.task, directionThere}.clear(), v.marks.clear(), u.record.update(func(g *recordData) {
		g.OwnKargs, g.RequestedDigest, g.BootedDigest = b.OwnKargs, b.RequestedDigest, b.BootedDigest
		g.addReturn(u.now(), b)
	}))
}

// discard drops what is staged; the next call observes it.
func (u *Updater) discard(ctx context.Context, v *view) updaters.Result {
	if err := v.driver.Discard(ctx); err != nil {
		return u.retryLater(ctx, "the staged deployment could not be dropped", err)
	}
	return updaters.InProgress(v1alpha1.ReasonUndoing, "the staged deployment was dropped")
}

// stagePrevious makes what was booted before the next boot, and verifies that.
func (u *Updater) stagePrevious(ctx context.Context, v *view, b *previousBoot) (updaters.Result, error) {
	done, err := v.marks.get("staged")
	if err != nil || hasID(v.status.Next, done) {
		return updaters.Result{}, err
	}
	switch err = u.rollBackOrStage(ctx, v, b); {
	case errors.Is(err, osdriver.ErrNoRollback):
		return updaters.Fail(v1alpha1.ReasonNotReversible, "%s is no longer on this node, and was not from an image that could be fetched again", b.displayName()), nil
	case err != nil:
		return u.retryLater(ctx, "the rollback could not be prepared", err), nil
	}
	if v.status, err = v.driver.Status(ctx); err != nil {
		return updaters.Result{}, err
	}
	if !b.matches(v.status.Next) || v.status.NextIsBooted() {
		return updaters.Fail(v1alpha1.ReasonOSNotStaged, "the host reported a rollback to %s, but the next boot is into %s; nothing was restarted", b.displayName(), deploymentName(v.status.Next)), nil
	}
	return updaters.Result{}, v.marks.set("staged", v.status.Next.ID)
}

// rollBackOrStage prepares the deployment that is still there, or stages its image again.
func (u *Updater) rollBackOrStage(ctx context.Context, v *view, b *previousBoot) (err error) {
	if b.matches(v.status.Rollback) {
		return v.driver.Rollback(ctx)
	}
	if b.Image == "" {
		return osdriver.ErrNoRollback
	}
	t := v.target
	if t.Source, t.Same, err = u.host.Image(ctx, b.Image); err != nil {
		return err
	}
	return stageOrDrop(ctx, v, t)
}
