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

// Undo boots what was booted before. A node that was taken back by somebody else
// already is left where it is.
func (u *Updater) Undo(ctx context.Context, t updaters.Task) (r updaters.Result, err error) {
	return u.one(func() error { r, err = u.undo(ctx, t); return err }, &r)
}

func (u *Updater) undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	b, err := kept(t)
	if err != nil || b == nil {
		return updaters.Result{Done: err == nil}, err
	}
	v, err := u.lookBack(ctx, t, b)
	if err != nil {
		return updaters.Result{}, err
	}
	if no := v.refused(); no.Failed || no.Reason != "" {
		return no, nil
	}
	if b.runs(v) {
		return u.stay(ctx, v, b)
	}
	return u.leave(ctx, v, b)
}

// lookBack is look, for the way back.
func (u *Updater) lookBack(ctx context.Context, t updaters.Task, b *before) (v *view, err error) {
	v = &view{task: t, marks: marks{t, "back"}, ready: model.OSReadySeconds * time.Second}
	if v.driver, v.status, err = u.status(ctx); err != nil {
		return nil, err
	}
	r, err := u.record.read()
	if err != nil {
		return nil, err
	}
	u.turn(v.marks)
	v.target = b.target(append(slices.Clone(b.Given), r.Given...))
	return v, nil
}

// leave restarts into what was booted before.
func (u *Updater) leave(ctx context.Context, v *view, b *before) (updaters.Result, error) {
	over, err := u.bootOver(v)
	if err != nil {
		return updaters.Result{}, err
	}
	if over {
		return updaters.Fail(v1alpha1.ReasonVersionReverted, "the machine was restarted to go back to %s and runs %s: %s", b.name(), name(v.status.Booted), v.driver.Failure(ctx)), nil
	}
	if r, err := u.back(ctx, v, b); err != nil || r.Failed || r.Reason != "" {
		return r, err
	}
	return u.enter(ctx, v)
}

// target is what to go back to. Of refit's arguments those are wanted that the kernel
// had then.
func (b *before) target(given []string) osdriver.Target {
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

// runs reports whether the node runs what it did, with its arguments.
func (b *before) runs(v *view) bool {
	missing, left := v.target.Lacking(v.status.Running)
	return b.is(v.status.Booted) && len(missing)+len(left) == 0
}

func (b *before) name() string {
	return name(&osdriver.Deployment{ID: b.ID, Digest: b.Digest})
}

// stay drops what is staged over what is to stay.
func (u *Updater) stay(ctx context.Context, v *view, b *before) (updaters.Result, error) {
	if !v.status.Stays() {
		return u.discard(ctx, v), nil
	}
	return updaters.Result{Done: true}, errors.Join(marks{v.task, "there"}.clear(), v.marks.clear(), u.record.change(func(g *given) { g.Given, g.Asked, g.Booted = b.Given, b.Asked, b.Booted }))
}

// discard drops what is staged; the next call looks.
func (u *Updater) discard(ctx context.Context, v *view) updaters.Result {
	if err := v.driver.Discard(ctx); err != nil {
		return u.later(ctx, "what is staged could not be dropped", err)
	}
	return updaters.Going(v1alpha1.ReasonUndoing, "what was staged was dropped")
}

// back makes what was booted before the next boot, and reads it back.
func (u *Updater) back(ctx context.Context, v *view, b *before) (updaters.Result, error) {
	done, err := v.marks.read("staged")
	if err != nil || is(v.status.Next, done) {
		return updaters.Result{}, err
	}
	switch err = u.turnBack(ctx, v, b); {
	case errors.Is(err, osdriver.ErrNoRollback):
		return updaters.Fail(v1alpha1.ReasonNotReversible, "%s is no longer on this node, and was not from an image that could be fetched again", b.name()), nil
	case err != nil:
		return u.later(ctx, "going back could not be prepared", err), nil
	}
	if v.status, err = v.driver.Status(ctx); err != nil {
		return updaters.Result{}, err
	}
	if !b.is(v.status.Next) || v.status.Stays() {
		return updaters.Fail(v1alpha1.ReasonOSNotStaged, "the host said that it goes back to %s, and the next boot is into %s; nothing was restarted", b.name(), name(v.status.Next)), nil
	}
	return updaters.Result{}, v.marks.write("staged", v.status.Next.ID)
}

// turnBack prepares the deployment that is still there, or its image once more.
func (u *Updater) turnBack(ctx context.Context, v *view, b *before) (err error) {
	if b.is(v.status.Rollback) {
		return v.driver.Rollback(ctx)
	}
	if b.Image == "" {
		return osdriver.ErrNoRollback
	}
	t := v.target
	if t.Source, t.Same, err = u.host.Image(ctx, b.Image); err != nil {
		return err
	}
	return v.driver.Stage(ctx, t)
}
