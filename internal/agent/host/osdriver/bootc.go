package osdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BootcDriver is a host with bootc.
type BootcDriver struct{ host Host }

// NewBootc makes the driver; nothing is run yet.
func NewBootc(h Host) *BootcDriver { return &BootcDriver{h} }

// Name is bootc.
func (d *BootcDriver) Name() string { return Bootc }

// ReadHost asks bootc. It tries the flags of an older version if bootc does not know these.
func (d *BootcDriver) ReadHost(ctx context.Context) (*BootcHost, error) {
	out, err := d.host.Runner.Run(ctx, nil, "bootc", "status", "--format=json", "--format-version=1")
	var tool *ToolError
	if errors.As(err, &tool) && tool.Code == 2 {
		out, err = d.host.Runner.Run(ctx, nil, "bootc", "status", "--json")
	}
	if err != nil {
		return nil, err
	}
	return parseBootc(out)
}

// Status reads the host.
func (d *BootcDriver) Status(ctx context.Context) (Status, error) {
	h, err := d.ReadHost(ctx)
	if err != nil {
		return Status{}, err
	}
	if !h.Known() {
		return Status{}, errors.New("bootc does not say what is booted: whether this host can be moved is not known")
	}
	s := h.status()
	if s.Staged != nil && h.onOSTree() && d.host.locked() {
		s.Staged.Locked = true // a bootc before 1.11 does not report it
	}
	if s.Unsupported == "" && !d.canDrop(ctx, h) {
		s.Unsupported = cannotDrop
	}
	s.Capabilities = d.capabilities(ctx, h)
	if s.Running, err = d.host.Running(); err != nil {
		return Status{}, err
	}
	s.Drift = append(s.Drift, d.host.EtcDrift(ctx)...)
	return s, nil
}

// cannotDrop: a node must be able to drop what it stages, or it boots that at any restart.
const cannotDrop = "this host could not drop what bootc stages: it has no earlier deployment to roll back to, and no program ostree. " +
	"Put ostree into its image, or boot a first image by hand (`bootc switch IMAGE`, then a restart)"

// canDrop reports whether Discard has a way to drop what is staged. A program that fails is there.
func (d *BootcDriver) canDrop(ctx context.Context, h *BootcHost) bool {
	if !h.onOSTree() || h.Status.Rollback != nil {
		return true
	}
	_, err := d.host.Runner.Run(ctx, nil, "ostree", "--version")
	return !Missing(err)
}

// status is the document in our words.
func (h *BootcHost) status() Status {
	s := Status{Driver: Bootc, RollbackQueued: h.Status.RollbackQueued, Composefs: h.Status.Booted != nil && h.Status.Booted.Composefs != nil,
		Booted: deployment(h.Status.Booted), Staged: deployment(h.Status.Staged), Rollback: deployment(h.Status.Rollback)}
	switch {
	case s.RollbackQueued && s.Rollback != nil:
		s.Next = s.Rollback
	case s.Staged != nil:
		s.Next = s.Staged
	default:
		s.Next = s.Booted
	}
	if !h.Manages() {
		s.Unsupported = "packages were layered on the image on this node, which bootc does not carry over; `rpm-ostree reset` on the node takes them away"
		if h.Status.Booted.Image == nil && !h.Status.Booted.Incompatible {
			s.Unsupported = "bootc runs here, but the booted OS is not from a container image"
		}
	}
	s.Drift = h.drift()
	return s
}

func (h *BootcHost) drift() []Drift {
	var out []Drift
	if o := h.Status.UsrOverlay; o != nil {
		out = append(out, Drift{Kind: DriftOverlay, Detail: "an overlay is mounted over /usr (" + o.AccessMode + ", " + o.Persistence + ")"})
	}
	all := []struct {
		what string
		e    *bootcEntry
	}{{"booted", h.Status.Booted}, {"staged", h.Status.Staged}}
	for _, one := range all {
		switch {
		case one.e == nil:
		case one.e.Incompatible:
			out = append(out, Drift{Kind: DriftPackages, Detail: "the " + one.what + " deployment was changed on the node with rpm-ostree"})
		case one.e.Image == nil:
			out = append(out, Drift{Kind: DriftForeign, Detail: "the " + one.what + " deployment is not from a container image"})
		}
	}
	return out
}

func deployment(e *bootcEntry) *Deployment {
	if e == nil {
		return nil
	}
	d := &Deployment{Pinned: e.Pinned, Incompatible: e.Incompatible, Locked: e.DownloadOnly, SoftReboot: e.SoftRebootCapable}
	if e.OSTree != nil {
		d.ID = fmt.Sprintf("%s.%d", e.OSTree.Checksum, e.OSTree.DeploySerial)
	} else if e.Composefs != nil {
		d.ID = e.Composefs.Verity
	}
	if i := e.Image; i != nil {
		d.Image, d.Digest = i.Image.Image, i.ImageDigest
		if i.Version != nil {
			d.Version = *i.Version
		}
	}
	return d
}

// capabilities are read from the help texts: versions say nothing about what a
// distribution took over.
func (d *BootcDriver) capabilities(ctx context.Context, h *BootcHost) []string {
	out := []string{CanKargsImage}
	if d.helps(ctx, "--download-only", "bootc", "switch") || h.onOSTree() && d.locks(ctx) {
		out = append(out, CanDownloadOnly)
	}
	if d.helps(ctx, "--soft-reboot", "bootc", "switch") && (h.Status.Staged == nil || h.Status.Staged.SoftRebootCapable) {
		out = append(out, CanSoftReboot)
	}
	// The command is there on hosts where it always fails: it needs a libostree that keeps
	// the owners of arguments in what it stages.
	if h.onOSTree() && d.helps(ctx, "set-options-for-source", "bootc", "loader-entries") && d.host.hasOSTree(ctx, 2026, 1) {
		out = append(out, CanKargsVerb)
	}
	return out
}

// helps reports whether the help of a command has a word; without an answer there is less to
// use.
func (d *BootcDriver) helps(ctx context.Context, word string, command ...string) bool {
	help, err := d.host.Runner.Run(ctx, nil, append(command, "--help")...)
	return err == nil && bytes.Contains(help, []byte(word))
}

// locks reports whether libostree can lock what is staged: no bootc does it for a switch.
func (d *BootcDriver) locks(ctx context.Context) bool {
	return d.helps(ctx, "lock-finalization", "ostree", "admin")
}

// kargsOwner is whose arguments they are, where bootc keeps that apart.
const kargsOwner = "refit"

// Stage switches to the image by digest. What is staged or queued is dropped first:
// bootc compares with the staged reference and answers "unchanged".
func (d *BootcDriver) Stage(ctx context.Context, t Target) error {
	s, err := d.Status(ctx)
	switch {
	case err != nil:
		return err
	case s.Unsupported != "":
		return fmt.Errorf("%w: %s", ErrUnsupported, s.Unsupported)
	case !s.NextIsBooted():
		if err := d.Discard(ctx); err != nil {
			return err
		}
	}
	if _, err := d.host.Runner.Run(ctx, nil, d.switchCommand(ctx, s, t)...); err != nil {
		return err
	}
	if err := d.setKargs(ctx, s, t); err != nil || !s.Can(CanDownloadOnly) {
		return err
	}
	return d.lock(ctx)
}

// switchCommand stages the image. It prepares a restart of user space only where nothing is staged
// ahead: any `systemctl reboot` enters what is prepared for one, locked or not.
func (d *BootcDriver) switchCommand(ctx context.Context, s Status, t Target) []string {
	argv := []string{"bootc", "switch", "--quiet", "--transport", t.Source.Transport}
	switch {
	case d.helps(ctx, "--download-only", "bootc", "switch"):
		argv = append(argv, "--download-only")
	case s.Can(CanDownloadOnly): // it is locked afterwards
	case t.SoftReboot && s.Can(CanSoftReboot):
		argv = append(argv, "--soft-reboot=auto")
	}
	return append(argv, t.Source.Location)
}

// setKargs gives what is staged its arguments. bootc stages it anew for that, without the lock.
func (d *BootcDriver) setKargs(ctx context.Context, s Status, t Target) error {
	if len(t.Kargs)+len(t.Drop) == 0 || !s.Can(CanKargsVerb) {
		return nil // kargs.d of the image has them, and the running kernel tells
	}
	_, err := d.host.Runner.Run(ctx, nil, "bootc", "loader-entries", "set-options-for-source", "--source", kargsOwner, "--options", strings.Join(t.Kargs, " "))
	return err
}

// lock keeps what is staged from an unplanned restart.
func (d *BootcDriver) lock(ctx context.Context) error {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil || s.Staged.Locked || !d.locks(ctx) {
		return err
	}
	_, err = d.host.Runner.Run(ctx, nil, "ostree", "admin", "lock-finalization")
	return err
}

// Discard drops a staged deployment or a queued rollback. bootc has no command for it. libostree
// has one for staged deployments; `bootc rollback` drops a staged deployment, and a second one
// cancels the rollback.
func (d *BootcDriver) Discard(ctx context.Context) error {
	for range 3 {
		s, err := d.Status(ctx)
		if err != nil || s.NextIsBooted() {
			return err
		}
		if s.Staged != nil && !s.RollbackQueued {
			if err := d.undeploy(ctx, s); err == nil {
				continue
			} else if s.Rollback == nil {
				return fmt.Errorf("drop the staged deployment: %w", err)
			}
		}
		if err := d.toggle(ctx, s); err != nil {
			return err
		}
	}
	return errors.New("a staged deployment or a queued rollback could not be dropped; run `bootc status` on the node")
}

// undeploy drops what is staged. Without libostree's deployments bootc keeps what is staged in
// one file of /run, which its shutdown reads: `bootc rollback` removes it, but only where there
// is something to roll back to.
func (d *BootcDriver) undeploy(ctx context.Context, s Status) error {
	if !s.Composefs {
		_, err := d.host.Runner.Run(ctx, nil, "ostree", "admin", "undeploy", "0")
		return err
	}
	if s.Rollback != nil {
		return errors.ErrUnsupported // bootc itself does more
	}
	if err := os.Remove(filepath.Join(d.host.Root, "/run/composefs/staged-deployment")); err != nil {
		return fmt.Errorf("what bootc staged: %w", err)
	}
	return nil
}

// toggle queues a rollback, or cancels one, and drops what is staged. bootc refuses to while the
// older deployment is from no container image, as on a host that has booted its first one:
// libostree does it then.
func (d *BootcDriver) toggle(ctx context.Context, s Status) error {
	_, err := d.host.Runner.Run(ctx, nil, "bootc", "rollback")
	if err == nil || s.Composefs || s.Rollback == nil || s.Rollback.Digest != "" {
		return err
	}
	o := NewOstree(d.host, nil)
	if s.RollbackQueued {
		return o.Discard(ctx)
	}
	return o.Rollback(ctx)
}

// Rollback queues the earlier deployment. It toggles, and drops what is staged.
func (d *BootcDriver) Rollback(ctx context.Context) error {
	for range 2 {
		s, err := d.Status(ctx)
		switch {
		case err != nil:
			return err
		case s.Rollback == nil:
			return ErrNoRollback
		case s.returns():
			return nil
		}
		if err := d.toggle(ctx, s); err != nil {
			return err
		}
	}
	s, err := d.Status(ctx)
	if err == nil && !s.returns() {
		err = errors.New("bootc rollback ended with 0, and no rollback is queued")
	}
	return err
}

// returns reports whether the next boot is into the earlier deployment, or into the same tree
// deployed again.
func (s Status) returns() bool {
	if s.RollbackQueued || s.Rollback == nil || s.Staged == nil {
		return s.RollbackQueued
	}
	was, _, _ := strings.Cut(s.Rollback.ID, ".")
	return s.Staged.Digest == "" && strings.HasPrefix(s.Staged.ID, was+".")
}

// Activate lets go what was only downloaded, and prepares a restart of user space alone where
// that is permitted.
func (d *BootcDriver) Activate(ctx context.Context, t Target) (Activation, error) {
	s, err := d.Status(ctx)
	if err != nil || s.Staged == nil || s.RollbackQueued {
		return ByReboot, err
	}
	soft := softly(t, s)
	if s.Staged.Locked || soft && !d.host.nextRoot() {
		if err := d.letGo(ctx, s, soft); err != nil {
			return "", err
		}
	}
	if soft && d.host.nextRoot() {
		return BySoftReboot, err
	}
	return ByReboot, err // bootc may prepare nothing, and end with 0
}

// letGo unlocks what is staged, and reads that back.
func (d *BootcDriver) letGo(ctx context.Context, s Status, soft bool) error {
	argv := []string{"ostree", "admin", "lock-finalization", "--unlock"}
	if d.helps(ctx, "--from-downloaded", "bootc", "upgrade") {
		argv = []string{"bootc", "upgrade", "--from-downloaded"}
		if soft {
			argv = append(argv, "--soft-reboot=auto")
		}
	} else if !s.Staged.Locked {
		return nil
	}
	if _, err := d.host.Runner.Run(ctx, nil, argv...); err != nil {
		return err
	}
	now, err := d.Status(ctx)
	if err == nil && now.Staged != nil && now.Staged.Locked {
		err = errors.New("the staged deployment was let go, and is still only downloaded; run `bootc status` on the node")
	}
	return err
}

// Failure says why the last shutdown did not finish what was staged.
func (d *BootcDriver) Failure(ctx context.Context) string { return d.host.FinaliseFailure(ctx) }

// Newer asks whether the tag that the host follows has moved: the digest behind it,
// empty if it has not. The exit status is 0 either way.
func (d *BootcDriver) Newer(ctx context.Context) (digest string, err error) {
	if _, err := d.host.Runner.Run(ctx, nil, "bootc", "upgrade", "--check"); err != nil {
		return "", err
	}
	h, err := d.ReadHost(ctx)
	if err != nil || !h.Known() || h.Status.Booted.CachedUpdate == nil {
		return "", err
	}
	booted, cached := h.Status.Booted.Image, h.Status.Booted.CachedUpdate
	if booted != nil && booted.ImageDigest == cached.ImageDigest {
		return "", nil
	}
	return cached.ImageDigest, nil
}

// softly reports whether what is staged may and can be entered without the firmware.
func softly(t Target, s Status) bool {
	return t.SoftReboot && s.Can(CanSoftReboot) && s.Staged.SoftReboot
}
