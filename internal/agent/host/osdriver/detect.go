package osdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Openers open images as trees.
type Openers struct {
	Whole     OpenTree
	Extension OpenExtension
}

// Detect decides, in this order: bootc, rpm-ostree, plain libostree, systemd-sysext,
// and an OS of packages.
func Detect(ctx context.Context, h Host, open Openers) (Driver, error) {
	_, err := os.Stat(filepath.Join(h.Root, "/run/ostree-booted"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("how this host boots: %w", err)
	}
	deployed := err == nil
	if d, err := ofBootc(ctx, h, deployed); d != nil || err != nil {
		return d, err
	}
	if deployed {
		return ofOSTree(ctx, h, open)
	}
	_, err = h.Runner.Run(ctx, nil, "systemd-sysext", "status", "--json=short")
	switch {
	case err == nil:
		return NewSysext(h, open.Extension), nil
	case Missing(err):
		return packageDriver{h}, nil
	}
	return nil, err
}

// ofBootc is nil if bootc is not there or does not move this host.
func ofBootc(ctx context.Context, h Host, deployed bool) (Driver, error) {
	d := NewBootc(h)
	said, err := d.ReadHost(ctx)
	switch {
	case Missing(err):
		return nil, nil
	case err != nil:
		return nil, err
	case said.Manages():
		return d, nil
	case !said.Known() && deployed:
		return nil, errors.New("bootc does not say what is booted: whether this host can be moved is not known")
	}
	return nil, nil
}

// ofOSTree is for hosts that libostree deployed. An rpm-ostree that knows no
// containers cannot rebase to one.
func ofOSTree(ctx context.Context, h Host, open Openers) (Driver, error) {
	out, err := h.Runner.Run(ctx, nil, "rpm-ostree", "--version")
	switch {
	case Missing(err):
		return NewOstree(h, open.Whole), nil
	case err != nil:
		return nil, err
	case bytes.Contains(out, []byte("container")):
		return NewRPMOstree(h), nil
	}
	return unsupportedDriver{packageDriver{h}, "its rpm-ostree knows no container images (`rpm-ostree --version` lists no feature container): update it first"}, nil
}

// packageDriver is a host whose OS is made of packages.
type packageDriver struct{ host Host }

var errPackages = fmt.Errorf("%w: it is made of packages; bootc, rpm-ostree, ostree or systemd-sysext would be needed", ErrUnsupported)

func (packageDriver) Name() string { return Package }

// Status says why nothing can be moved.
func (p packageDriver) Status(context.Context) (Status, error) {
	running, err := p.host.Running()
	d := &Deployment{ID: Package}
	return Status{Driver: Package, Booted: d, Next: d, Running: running,
		Unsupported: "the OS of this node is made of packages: files, units and programs are updated, the OS itself is not; bootc, rpm-ostree, ostree or systemd-sysext would be needed"}, err
}

func (packageDriver) Stage(context.Context, Target) error { return errPackages }
func (packageDriver) Discard(context.Context) error       { return nil }
func (packageDriver) Rollback(context.Context) error      { return errPackages }
func (packageDriver) Activate(context.Context, Target) (Activation, error) {
	return "", errPackages
}
func (packageDriver) Failure(context.Context) string { return "" }

// unsupportedDriver is a host that could be moved, if one of its tools were another.
type unsupportedDriver struct {
	packageDriver
	why string
}

func (u unsupportedDriver) Status(ctx context.Context) (Status, error) {
	s, err := u.packageDriver.Status(ctx)
	s.Unsupported = u.why
	return s, err
}
