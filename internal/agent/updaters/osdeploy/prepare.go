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

// prepared is what is ready on the node before a run starts.
type prepared struct {
	// Config is the name of the configuration that wants it.
	Config string `json:"config"`
	// Deployment is staged, and locked until the run activates it; empty: the host
	// cannot lock one, and only the bytes are here.
	Deployment string `json:"deployment,omitempty"`
	// Same are other digests of the image.
	Same []string `json:"same,omitempty"`
}

// errBusy says that another call of this updater is in progress.
var errBusy = errors.New("another operation on the OS of this node is in progress")

// Prepare brings what a configuration boots onto the node ahead of its run. Where the host
// can lock a staged deployment, Prepare stages it, and an unplanned restart does not boot
// it. Elsewhere it only fetches the bytes, so that an unreachable registry costs nothing
// later. It drops what was prepared for another configuration, and may be called any number
// of times.
func (u *Updater) Prepare(ctx context.Context, name string, c *model.NodeConfig) error {
	if c.OS.Digest() == "" {
		return u.Drop(ctx)
	}
	err := u.exclusive(func() error { return u.prepare(ctx, name, c) })
	u.mu.Lock()
	defer u.mu.Unlock()
	u.problem = ""
	if err != nil && ctx.Err() == nil {
		u.problem = err.Error()
	}
	u.seen.ok = false
	return err
}

// exclusive runs do while no other call of this updater changes the host.
func (u *Updater) exclusive(do func() error) error {
	if !u.work.TryLock() {
		return errBusy
	}
	defer u.work.Unlock()
	return do()
}

func (u *Updater) prepare(ctx context.Context, name string, c *model.NodeConfig) error {
	v, r, err := u.inspectConfig(ctx, c)
	switch {
	case err != nil:
		return err
	case v.status.Unsupported != "":
		return errors.New(v.status.Unsupported)
	case v.status.Busy != "":
		return fmt.Errorf("the host is changing its deployments already: %s", v.status.Busy)
	case r.Prepared.isReady(name, v.status):
		return nil
	}
	if err := u.dropPrepared(ctx, v.driver, v.status, r); err != nil {
		return err
	}
	p := &prepared{Config: name}
	if !v.target.IsImageOf(v.status.Booted) { // else only arguments may differ, which the step sets
		if v.target.Source, p.Same, err = u.host.Fetch(ctx, v.target.Image); err != nil {
			return err
		}
		v.target.Same = p.Same
	}
	if !v.target.IsImageOf(v.status.Booted) && v.status.Can(osdriver.CanDownloadOnly) {
		if p.Deployment, err = u.stageLocked(ctx, v); err != nil {
			return err
		}
	}
	return u.record.update(func(g *recordData) { g.Prepared = p })
}

// stageLocked stages the target, and returns the deployment if it is locked. Any restart
// would boot an unlocked one, so that is dropped.
func (u *Updater) stageLocked(ctx context.Context, v *view) (id string, err error) {
	if err := u.record.addKargs(v.target.Kargs, v.status.Running); err != nil {
		return "", err
	}
	if err := stageOrDrop(ctx, v, v.target); err != nil {
		return "", err
	}
	failpoint.Here(failpoint.OSStaged)
	s, err := v.driver.Status(ctx)
	switch {
	case err != nil:
		return "", err
	case s.NextIsBooted() || !v.target.IsImageOf(s.Next):
		return "", fmt.Errorf("the host reported %s as staged, but the next boot is into %s", text.ShortDigest(v.target.Digest), deploymentName(s.Next))
	case !s.Next.Locked:
		return "", v.driver.Discard(ctx)
	}
	if err := u.carryAgent(ctx, v.driver, s.Next); err != nil { // the step would drop it after the drain
		return "", errors.Join(err, v.driver.Discard(ctx))
	}
	return s.Next.ID, nil
}

// isReady reports whether what a configuration boots is prepared.
func (p *prepared) isReady(config string, s osdriver.Status) bool {
	return p != nil && p.Config == config && (p.Deployment == "" || hasID(s.Next, p.Deployment))
}

// Drop drops what was prepared and is not wanted any more. What others staged stays.
func (u *Updater) Drop(ctx context.Context) error {
	r, err := u.record.load()
	if err != nil || r.Prepared == nil {
		return err
	}
	return u.exclusive(func() error {
		d, s, err := u.status(ctx)
		if err != nil {
			return err
		}
		return u.dropPrepared(ctx, d, s, r)
	})
}

func (u *Updater) dropPrepared(ctx context.Context, d osdriver.Driver, s osdriver.Status, r recordData) error {
	if r.Prepared == nil {
		return nil
	}
	if !s.NextIsBooted() && hasID(s.Next, r.Prepared.Deployment) {
		if err := d.Discard(ctx); err != nil {
			return err
		}
	}
	u.mu.Lock()
	u.seen.ok, u.problem = false, ""
	u.mu.Unlock()
	return errors.Join(u.record.update(func(g *recordData) { g.Prepared = nil }), u.host.Forget())
}

// usePrepared makes a run use what was prepared for its configuration.
func (v *view) usePrepared(p *prepared, config string) (taken bool, err error) {
	if !p.isReady(config, v.status) || p.Deployment == "" || v.status.NextIsBooted() {
		return false, nil
	}
	v.target.Same = p.Same
	if err := v.marks.set("same", strings.Join(p.Same, " ")); err != nil {
		return false, err
	}
	return true, v.marks.set("staged", v.status.Next.ID)
}
