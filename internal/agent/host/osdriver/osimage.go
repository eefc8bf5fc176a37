package osdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Names of drivers.
const (
	Bootc     = "bootc"
	RPMOSTree = "rpm-ostree"
	OSTree    = "ostree"
	Sysext    = "sysext"
	// Package is a host whose OS is made of packages: it is only looked at.
	Package = "package"
)

// What a host can do, beyond what every driver does.
const (
	CanSoftReboot   = "softReboot"
	CanDownloadOnly = "downloadOnly"
	CanKargsVerb    = "kargsVerb"  // kernel arguments of this one machine
	CanKargsImage   = "kargsImage" // kernel arguments that the image brings (kargs.d)
)

// Transports of a Source.
const (
	Registry          = "registry"
	Layout            = "oci"
	ContainersStorage = "containers-storage"
)

// Source is where the bytes of an image are.
type Source struct {
	// Transport is one of those above.
	Transport string
	// Location is a reference with digest, or the folder of an OCI layout that has
	// this one image.
	Location string
}

// Target is what a node is to boot.
type Target struct {
	// Image as name@sha256:...
	Image string
	// Digest of the image, and Same those of the same content: an index and the
	// manifest of this node's platform. Hosts report one or the other.
	Digest string
	Same   []string
	Source Source
	// Kargs are kernel arguments that this machine is to have beside its own, Drop
	// those that an earlier target gave it and that are wanted no more.
	Kargs, Drop []string
	// SoftReboot permits a restart of user space alone, where the host can.
	SoftReboot bool
}

// Is reports whether a digest is the target's.
func (t Target) Is(digest string) bool {
	return digest != "" && (digest == t.Digest || slices.Contains(t.Same, digest))
}

// On reports whether a deployment is the target's image.
func (t Target) On(d *Deployment) bool { return d != nil && t.Is(d.Digest) }

// Deployment is one OS that the host has and can boot.
type Deployment struct {
	// ID tells the host's deployments apart.
	ID string
	// Image as the host knows it; Digest of its manifest, empty if it is not from
	// an image.
	Image, Digest string
	// Version that the image says it has.
	Version string
	// Pinned by somebody; Incompatible: changed on the node in a way that image
	// updates do not keep (layered packages).
	Pinned, Incompatible bool
	// Locked is prepared, and not booted before it is let go. SoftReboot: it can
	// be entered without the firmware.
	Locked, SoftReboot bool
	// Kargs that it boots with, where the host says it before.
	Kargs []string
}

// Kinds of drift.
const (
	DriftOverlay     = "UsrOverlay"        // /usr is writable, or something lies over it
	DriftPackages    = "LayeredPackages"   // packages were added to the image on the node
	DriftForeign     = "ForeignDeployment" // a deployment that is not from an image
	DriftShadow      = "ShadowedByEtc"     // a file in /etc hides the one of the image
	DriftSelfUpdates = "SelfUpdates"       // the host updates itself by a timer
)

// Drift is one thing that is not as the image has it.
type Drift struct{ Kind, Detail string }

// Status is what a host says of itself.
type Status struct {
	Driver string
	// Unsupported says why its OS cannot be moved, empty if it can.
	Unsupported string
	// Booted is what runs. Staged is prepared for the next boot, Rollback what the
	// host goes back to. Next is the one of them that boots next.
	Booted, Staged, Rollback, Next *Deployment
	// RollbackQueued: next is an older one, by somebody's wish.
	RollbackQueued bool
	// Busy says what the host is doing to its deployments now.
	Busy string
	// Running are the kernel's arguments.
	Running      []string
	Capabilities []string
	Drift        []Drift
}

// Can reports a capability.
func (s Status) Can(what string) bool { return slices.Contains(s.Capabilities, what) }

// Stays reports whether the next boot is into what runs now.
func (s Status) Stays() bool { return s.Next == nil || s.Booted != nil && s.Next.ID == s.Booted.ID }

// Driver is one kind of host.
type Driver interface {
	// Name is one of those above.
	Name() string
	// Status reads the host. It changes nothing.
	Status(ctx context.Context) (Status, error)
	// Stage prepares the target for the next boot; Status says whether it is.
	Stage(ctx context.Context, t Target) error
	// Discard makes the next boot one into what runs now: what is staged, or a
	// rollback that is queued, is dropped.
	Discard(ctx context.Context) error
	// Rollback makes the next boot one into Status.Rollback. ErrNoRollback if
	// there is none.
	Rollback(ctx context.Context) error
	// Activate lets go what was staged for a target and says how it comes into use.
	Activate(ctx context.Context, t Target) (Activation, error)
	// Failure says why the last shutdown did not bring the staged deployment into
	// its place, in the host's own words; empty if nothing says it.
	Failure(ctx context.Context) string
}

// Activation is how the next deployment comes into use.
type Activation string

// Activations.
const (
	ByReboot Activation = "reboot"
	// BySoftReboot is a restart of user space alone: the host has prepared it.
	BySoftReboot Activation = "soft-reboot"
	// Live is in use already.
	Live Activation = "live"
)

// ErrNoRollback says that the host has nothing to go back to.
var ErrNoRollback = errors.New("this host has no earlier deployment to go back to")

// ErrUnsupported says that the host's OS cannot be moved as an image.
var ErrUnsupported = errors.New("the OS of this host cannot be moved as an image")

// ToolError is a program of the host that failed.
type ToolError struct {
	// Argv is what was run, Code its exit status, Said the last lines it wrote.
	Argv []string
	Code int
	Said string
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("`%s` ended with %d: %s", strings.Join(e.Argv, " "), e.Code, e.Said)
}
