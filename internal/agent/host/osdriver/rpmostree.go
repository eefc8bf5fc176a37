package osdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"

	"github.com/refit-dev/refit/internal/failpoint"
)

// RPMOstreeDriver is a host with rpm-ostree.
type RPMOstreeDriver struct{ host Host }

// NewRPMOstree makes the driver.
func NewRPMOstree(h Host) *RPMOstreeDriver { return &RPMOstreeDriver{h} }

// Name is rpm-ostree.
func (d *RPMOstreeDriver) Name() string { return RPMOSTree }

func sorted(s []string) []string {
	sort.Strings(s)
	return s
}

func (d *RPMOstreeDriver) run(ctx context.Context, argv ...string) error {
	_, err := d.host.Runner.Run(ctx, nil, append([]string{"rpm-ostree"}, argv...)...)
	return err
}

func (d *RPMOstreeDriver) readStatus(ctx context.Context) (*rpmDocument, Status, error) {
	out, err := d.host.Runner.Run(ctx, nil, "rpm-ostree", "status", "--json")
	if err != nil {
		return nil, Status{}, err
	}
	doc, err := parseRPMOstree(out)
	if err != nil {
		return nil, Status{}, err
	}
	s := doc.status()
	if s.Booted == nil {
		return nil, Status{}, errors.New("rpm-ostree does not say which deployment is booted")
	}
	s.Capabilities = []string{CanKargsVerb, CanKargsImage}
	if d.locks(ctx, "rebase") && d.locks(ctx, "kargs") {
		s.Capabilities = append(s.Capabilities, CanDownloadOnly)
	}
	s.Running, err = d.host.Running()
	return doc, s, err
}

// Status reads the host.
func (d *RPMOstreeDriver) Status(ctx context.Context) (Status, error) {
	_, s, err := d.readStatus(ctx)
	if err != nil {
		return s, err
	}
	s.Drift = append(s.Drift, d.host.EtcDrift(ctx)...)
	return s, nil
}

// lockFlag keeps what a command stages from an unplanned restart.
const lockFlag = "--lock-finalization"

// locks reports whether a command has that flag.
func (d *RPMOstreeDriver) locks(ctx context.Context, command string) bool {
	help, err := d.host.Runner.Run(ctx, nil, "rpm-ostree", command, "--help")
	return err == nil && bytes.Contains(help, []byte(lockFlag))
}

// reference is what rebase takes. The policy of the host still decides what may be
// pulled; the digest says what it is.
func reference(s Source) (string, error) {
	switch s.Transport {
	case Registry:
		return "ostree-unverified-registry:" + s.Location, nil
	case Layout, ContainersStorage:
		return "ostree-unverified-image:" + s.Transport + ":" + s.Location, nil
	}
	return "", fmt.Errorf("rpm-ostree reads no image by %q", s.Transport)
}

// Stage rebases to the image, and gives what is pending its arguments. Rebasing to
// what is booted is an error for some versions: then only the arguments are set. Both lock what
// they stage, where the host can.
func (d *RPMOstreeDriver) Stage(ctx context.Context, t Target) error {
	doc, s, err := d.readStatus(ctx)
	switch {
	case err != nil:
		return err
	case s.Busy != "":
		return fmt.Errorf("rpm-ostree is at work: %s", s.Busy)
	case !s.NextIsBooted():
		if err := d.Discard(ctx); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.OSDiscarded)
	if !t.IsImageOf(s.Booted) {
		ref, err := reference(t.Source)
		if err != nil {
			return err
		}
		argv := []string{"rebase", "--experimental"}
		if doc.UpdateDriver != nil { // rpm-ostree refuses to rebase past it
			argv = append(argv, "--bypass-driver")
		}
		if s.Can(CanDownloadOnly) {
			argv = append(argv, lockFlag)
		}
		if err := d.run(ctx, append(argv, ref)...); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.OSImported)
	if doc, _, err = d.readStatus(ctx); err != nil {
		return err
	}
	return d.kargs(ctx, doc, s, t)
}

// kargs changes the arguments of what boots next.
func (d *RPMOstreeDriver) kargs(ctx context.Context, doc *rpmDocument, s Status, t Target) error {
	next, running := doc.Deployments[0], s.Running
	root := filepath.Join(d.host.Root, "/ostree/deploy", next.OSName, "deploy", fmt.Sprintf("%s.%d", next.Checksum, next.Serial))
	args, err := FollowImage(running, filepath.Join(d.host.Root, "/"), root)
	if err != nil {
		return err
	}
	args = Change(args, t.Drop, t.Kargs)
	argv := []string{"kargs"}
	for _, a := range running {
		if !slices.Contains(args, a) {
			argv = append(argv, "--delete-if-present="+a)
		}
	}
	for _, a := range args {
		if !slices.Contains(running, a) {
			argv = append(argv, "--append-if-missing="+a)
		}
	}
	if len(argv) == 1 {
		return nil
	}
	if s.Can(CanDownloadOnly) {
		argv = append(argv, lockFlag)
	}
	return d.run(ctx, argv...)
}

// Discard drops a pending deployment and cancels a queued rollback.
func (d *RPMOstreeDriver) Discard(ctx context.Context) error {
	for range 3 {
		_, s, err := d.readStatus(ctx)
		if err != nil || s.NextIsBooted() {
			return err
		}
		verb := []string{"cleanup", "--pending"}
		if s.RollbackQueued && s.Staged == nil {
			verb = []string{"rollback"}
		}
		if err := d.run(ctx, verb...); err != nil {
			return err
		}
	}
	return errors.New("what is pending could not be dropped; `rpm-ostree status` on the node shows it")
}

// Rollback makes the earlier deployment the next.
func (d *RPMOstreeDriver) Rollback(ctx context.Context) error {
	_, s, err := d.readStatus(ctx)
	switch {
	case err != nil:
		return err
	case s.Rollback == nil:
		return ErrNoRollback
	case s.RollbackQueued:
		return nil
	case s.Staged != nil:
		if err := d.run(ctx, "cleanup", "--pending"); err != nil {
			return err
		}
	}
	return d.run(ctx, "rollback")
}

// Activate lets go a deployment whose finalization is locked. rpm-ostree restarts the machine in
// the same stroke. It wants the digest of the image, not the commit that it made of it.
func (d *RPMOstreeDriver) Activate(ctx context.Context, _ Target) (Activation, error) {
	doc, s, err := d.readStatus(ctx)
	if err != nil {
		return "", err
	}
	if s.Staged == nil || !s.Staged.Locked || s.Next != s.Staged {
		return ByReboot, nil
	}
	expected := s.Staged.Digest
	if expected == "" {
		expected = doc.Deployments[0].Checksum
	}
	return ByReboot, d.run(ctx, "finalize-deployment", expected)
}

// Failure says why the last shutdown did not finish what was staged.
func (d *RPMOstreeDriver) Failure(ctx context.Context) string { return d.host.FinaliseFailure(ctx) }
