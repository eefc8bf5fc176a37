package osdriver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Names of drivers.
const (
	Bootc     = "bootc"
	RPMOSTree = "rpm-ostree"
	OSTree    = "ostree"
	Sysext    = "sysext"
	// Package is a host with an OS of packages: refit reports it and does not update it.
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
	// Kargs are kernel arguments to add to the machine's own; Drop are those that an
	// earlier target added and that are no longer wanted.
	Kargs, Drop []string
	// SoftReboot permits a restart of user space alone, where the host can.
	SoftReboot bool
}

// HasDigest reports whether a digest is the target's.
func (t Target) HasDigest(digest string) bool {
	return digest != "" && (digest == t.Digest || slices.Contains(t.Same, digest))
}

// IsImageOf reports whether a deployment is the target's image.
func (t Target) IsImageOf(d *Deployment) bool { return d != nil && t.HasDigest(d.Digest) }

// Deployment is one OS that the host has and can boot.
type Deployment struct {
	// ID tells the host's deployments apart.
	ID string
	// Image as the host knows it; Digest of its manifest, empty if it is not from
	// an image.
	Image, Digest string
	// Version that the image says it has.
	Version string
	// Pinned: an administrator pinned it. Incompatible: changed on the node in a way that
	// image updates do not keep (layered packages).
	Pinned, Incompatible bool
	// Locked: it is staged, and does not boot before Activate unlocks it. SoftReboot: it
	// can start without a reboot of the kernel.
	Locked, SoftReboot bool
	// Kargs that it boots with, where the host says it before.
	Kargs []string
}

// Kinds of drift.
const (
	DriftOverlay     = "UsrOverlay"        // /usr is writable, or a file system is mounted over it
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
	// Booted is the running deployment. Staged is prepared for the next boot, Rollback is
	// the target of a rollback. Next is the one of them that boots next.
	Booted, Staged, Rollback, Next *Deployment
	// RollbackQueued: Next is an older deployment, because an administrator asked for it.
	RollbackQueued bool
	// Busy says what the host is doing to its deployments now.
	Busy string
	// Running are the kernel's arguments.
	Running      []string
	Capabilities []string
	Drift        []Drift
	// Composefs: bootc keeps the deployments itself, and libostree knows none of them.
	Composefs bool
}

// Can reports a capability.
func (s Status) Can(what string) bool { return slices.Contains(s.Capabilities, what) }

// NextIsBooted reports whether the next boot starts the running deployment again.
func (s Status) NextIsBooted() bool {
	return s.Next == nil || s.Booted != nil && s.Next.ID == s.Booted.ID
}

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
	// Activate lets go what was staged for a target and says how it comes into use. A host may
	// restart the machine with it.
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

// ErrNoRollback reports that the host has no deployment to roll back to.
var ErrNoRollback = errors.New("this host has no earlier deployment to roll back to")

// ErrUnsupported says that the host's OS cannot be moved as an image.
var ErrUnsupported = errors.New("the OS of this host cannot be moved as an image")

// ErrNoAgent says that refit's agent would not start in a deployment, and cannot be brought there.
var ErrNoAgent = errors.New("refit's agent would not start with this image")

// DeploymentDir is the tree of a deployment on a host, also of one that is only staged; "" if libostree
// does not keep it as files.
func DeploymentDir(root string, d *Deployment) string {
	if d == nil || d.ID == "" || strings.ContainsAny(d.ID, "/*?[\\") {
		return ""
	}
	found, err := filepath.Glob(filepath.Join("/", root, "ostree/deploy/*/deploy", d.ID))
	if err != nil || len(found) != 1 {
		return ""
	}
	return found[0]
}

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
