package osdeploy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// prepared is what lies ready before a run begins.
type prepared struct {
	// Config is the name of the configuration that wants it.
	Config string `json:"config"`
	// Deployment is staged, and locked until the run lets it go; empty: the host can
	// lock none, and only the bytes are here.
	Deployment string `json:"deployment,omitempty"`
	// Same are other digests of the image.
	Same []string `json:"same,omitempty"`
}

// errAtWork says that another call of this updater is under way.
var errAtWork = errors.New("the OS of this node is being worked on already")

// Prepare brings what a configuration boots onto the node, before anything is taken
// from it: staged, where what is staged stays locked over a restart that nobody
// planned; else only its bytes, so that a registry that is away costs nothing
// later. What was prepared for another configuration is dropped. It may be called any
// number of times.
func (u *Updater) Prepare(ctx context.Context, name string, c *model.NodeConfig) error {
	if c.OS.Digest() == "" {
		return u.Drop(ctx)
	}
	err := u.alone(func() error { return u.prepare(ctx, name, c) })
	u.mu.Lock()
	defer u.mu.Unlock()
	u.problem = ""
	if err != nil && ctx.Err() == nil {
		u.problem = err.Error()
	}
	u.seen.ok = false
	return err
}

// alone does something while no other call of this updater changes the host.
func (u *Updater) alone(do func() error) error {
	if !u.work.TryLock() {
		return errAtWork
	}
	defer u.work.Unlock()
	return do()
}

func (u *Updater) prepare(ctx context.Context, name string, c *model.NodeConfig) error {
	v, r, err := u.toward(ctx, c)
	switch {
	case err != nil:
		return err
	case v.status.Unsupported != "":
		return errors.New(v.status.Unsupported)
	case v.status.Busy != "":
		return fmt.Errorf("the host is changing its deployments already: %s", v.status.Busy)
	case r.Prepared.holds(name, v.status):
		return nil
	}
	if err := u.forget(ctx, v.driver, v.status, r); err != nil {
		return err
	}
	p := &prepared{Config: name}
	if !v.target.On(v.status.Booted) { // else the step itself sees to the arguments
		if v.target.Source, p.Same, err = u.host.Fetch(ctx, v.target.Image); err != nil {
			return err
		}
		v.target.Same = p.Same
	}
	if !v.target.On(v.status.Booted) && v.status.Can(osdriver.CanDownloadOnly) {
		if p.Deployment, err = u.lock(ctx, v); err != nil {
			return err
		}
	}
	return u.record.change(func(g *given) { g.Prepared = p })
}

// lock stages the target, and says which deployment that is if it is locked. One that
// is not would be booted by any restart, and is dropped again.
func (u *Updater) lock(ctx context.Context, v *view) (id string, err error) {
	if err := u.record.add(v.target.Kargs, v.status.Running); err != nil {
		return "", err
	}
	if err := v.driver.Stage(ctx, v.target); err != nil {
		return "", err
	}
	failpoint.Here(failpoint.OSStaged)
	s, err := v.driver.Status(ctx)
	switch {
	case err != nil:
		return "", err
	case s.Stays() || !v.target.On(s.Next):
		return "", fmt.Errorf("the host said that it staged %s, and the next boot is into %s", text.ShortDigest(v.target.Digest), name(s.Next))
	case !s.Next.Locked:
		return "", v.driver.Discard(ctx)
	}
	return s.Next.ID, nil
}

// holds reports whether what a configuration boots lies ready.
func (p *prepared) holds(config string, s osdriver.Status) bool {
	return p != nil && p.Config == config && (p.Deployment == "" || is(s.Next, p.Deployment))
}

// Drop takes away what was prepared and is wanted no more. What somebody else staged
// stays.
func (u *Updater) Drop(ctx context.Context) error {
	r, err := u.record.read()
	if err != nil || r.Prepared == nil {
		return err
	}
	return u.alone(func() error {
		d, s, err := u.status(ctx)
		if err != nil {
			return err
		}
		return u.forget(ctx, d, s, r)
	})
}

func (u *Updater) forget(ctx context.Context, d osdriver.Driver, s osdriver.Status, r given) error {
	if r.Prepared == nil {
		return nil
	}
	if !s.Stays() && is(s.Next, r.Prepared.Deployment) {
		if err := d.Discard(ctx); err != nil {
			return err
		}
	}
	u.mu.Lock()
	u.seen.ok, u.problem = false, ""
	u.mu.Unlock()
	return errors.Join(u.record.change(func(g *given) { g.Prepared = nil }), u.host.Forget())
}

// take has a run use what was prepared for its configuration.
func (v *view) take(p *prepared, config string) (taken bool, err error) {
	if !p.holds(config, v.status) || p.Deployment == "" || v.status.Stays() {
		return false, nil
	}
	v.target.Same = p.Same
	if err := v.marks.write("same", strings.Join(p.Same, " ")); err != nil {
		return false, err
	}
	return true, v.marks.write("staged", v.status.Next.ID)
}
