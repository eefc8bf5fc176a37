package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Versions of a rendered configuration's JSON: one with files AsImage has its own, so that
// an agent which does not know them refuses it instead of writing empty ones.
const (
	ConfigVersion        = "refit.dev/config/v1"
	ConfigVersionAsImage = "refit.dev/config/v2"
)

// NodeConfig is what a node's own configuration is to be: the NodeConfigs that
// match the node, merged. It is the data of a Content of type "config", so it
// is named by its hash and never changes.
type NodeConfig struct {
	Version string `json:"version"`
	// Files by path, Units by name; each once, sorted.
	Files []ConfigFile `json:"files,omitempty"`
	Units []ConfigUnit `json:"units,omitempty"`
	// Kubelet is the JSON text of the kubelet's own drop-in, empty for none.
	Kubelet string `json:"kubelet,omitempty"`
	// Certificates by name.
	Certificates []ConfigCertificate `json:"certificates,omitempty"`
	// SandboxImage of the container runtime; empty leaves it as it is.
	SandboxImage string `json:"sandboxImage,omitempty"`
	// External are fields that external updaters change, by path.
	External []ConfigField `json:"external,omitempty"`
	// Packages come with the OS image; nothing installs them on a node that runs.
	Packages []string `json:"packages,omitempty"`
	// Drift is the policy for changes on the node that refit did not make: empty,
	// DriftRepair or DriftIgnore.
	Drift string `json:"drift,omitempty"`
	// OS is what the node is to boot; nil leaves it as it is.
	OS *ConfigOS `json:"os,omitempty"`
}

// Words of NodeConfig.Drift. A part of it says DriftReport where its rule differs from another
// policy of the whole.
const (
	DriftRepair = "repair"
	DriftIgnore = "ignore"
	DriftReport = "report"
)

// DriftOf is the policy for a part with a policy of its own, which may be empty.
func (c NodeConfig) DriftOf(own string) string {
	switch {
	case own != "":
		return own
	case c.Drift != "":
		return c.Drift
	}
	return DriftReport
}

// HasDriftRules reports whether a part has a policy of its own.
func (c NodeConfig) HasDriftRules() bool {
	return slices.ContainsFunc(c.Files, func(f ConfigFile) bool { return f.Drift != "" }) || slices.ContainsFunc(c.Units, func(u ConfigUnit) bool { return u.Drift != "" })
}

// RepairsDrift reports whether changes of other writers are to be undone anywhere.
func (c NodeConfig) RepairsDrift() bool {
	return c.Drift == DriftRepair || slices.ContainsFunc(c.Files, func(f ConfigFile) bool { return f.Drift == DriftRepair }) || slices.ContainsFunc(c.Units, func(u ConfigUnit) bool { return u.Drift == DriftRepair })
}

// ConfigOS is the operating system a node is to boot.
type ConfigOS struct {
	// Image is repository@sha256:..., the digest of a manifest or an index; empty
	// leaves the OS as it is.
	Image string `json:"image,omitempty"`
	// KernelArguments that refit gives, in order. Others on the node's command line
	// are not its business.
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// SoftReboot permits a restart of user space alone, where the host can.
	SoftReboot bool `json:"softReboot,omitempty"`
	// ReadySeconds is how long the node may take to be Ready with a new image before it
	// rolls back; 0 is OSReadySeconds.
	ReadySeconds int32 `json:"readySeconds,omitempty"`
	// Note says in words that a newer image is not booted, and why; empty for none.
	Note string `json:"note,omitempty"`
}

// OSReadySeconds is the default time for a node to be Ready with a new OS image.
const OSReadySeconds = 600

// ReadyWithin is how long the node may take to be Ready with a new image, in seconds.
func (o *ConfigOS) ReadyWithin() int32 {
	if o == nil || o.ReadySeconds <= 0 {
		return OSReadySeconds
	}
	return o.ReadySeconds
}

// Digest of the image, empty without one.
func (o *ConfigOS) Digest() string {
	if o == nil {
		return ""
	}
	_, digest, _ := strings.Cut(o.Image, "@")
	return digest
}

// ArgumentsValue is the value of the field os/kernel-arguments.
func (o *ConfigOS) ArgumentsValue() string {
	if o == nil || len(o.KernelArguments) == 0 {
		return ValueNone
	}
	return strings.Join(o.KernelArguments, " ")
}

// ConfigField is a part of a node that this node's agent only observes.
type ConfigField struct {
	Path  string `json:"path"`
	Value string `json:"value"`
	// File holds the value as it is.
	File string `json:"file"`
}

// ConfigFile is one file of a node, or one that must not be there.
type ConfigFile struct {
	Path string `json:"path"`
	// Mode are the permission bits; Owner and Group are names or numbers.
	Mode  uint32 `json:"mode,omitempty"`
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
	Data  []byte `json:"data,omitempty"`
	// Payload and Digest name a file that a bundle brings, instead of Data.
	Payload string `json:"payload,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// Absent: the file must not be there.
	Absent bool `json:"absent,omitempty"`
	// Disruption of a change of this file; Units are reloaded or restarted then.
	Disruption Disruption `json:"disruption"`
	Units      []string   `json:"units,omitempty"`
	// InImage: the file is below /usr and comes with the OS image alone. A node verifies
	// it and never writes it.
	InImage bool `json:"inImage,omitempty"`
	// Stale: the file is absent because it would hide what the OS image has in /usr. A
	// node removes it only if refit wrote it; another's is drift.
	Stale bool `json:"stale,omitempty"`
	// AsImage: a file that refit wrote over the booted image's file is restored; a file of
	// another writer stays.
	AsImage bool `json:"asImage,omitempty"`
	// Drift is the policy for this file, empty for that of the configuration.
	Drift string `json:"drift,omitempty"`
	// Own: refit chose the path, from the name of a unit. It is known while a
	// configuration is made and is not part of it.
	Own bool `json:"-"`
}

// ImageUnitPath is where an OS image has what a path of /etc/systemd/system would hide.
func ImageUnitPath(etc string) string {
	return "/usr/lib/systemd/system/" + strings.TrimPrefix(etc, "/etc/systemd/system/")
}

// UnitOf is the unit whose file, or drop-in, a path is; empty for another file.
func UnitOf(p string) string {
	for _, d := range []string{"/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/", "/usr/local/lib/systemd/system/"} {
		if rest, ok := strings.CutPrefix(p, d); ok {
			first, _, _ := strings.Cut(rest, "/")
			return strings.TrimSuffix(first, ".d")
		}
	}
	return ""
}

// States of a unit.
const (
	UnitEnabled  = "enabled"  // starts at boot, and runs
	UnitDisabled = "disabled" // does not start at boot, and does not run
	UnitMasked   = "masked"   // cannot be started at all
)

// ConfigUnit is the state of one systemd unit.
type ConfigUnit struct {
	Name       string     `json:"name"`
	State      string     `json:"state"`
	Disruption Disruption `json:"disruption"`
	// Drift is the policy for this unit, empty for that of the configuration.
	Drift string `json:"drift,omitempty"`
}

// ConfigCertificate is how young a certificate must be.
type ConfigCertificate struct {
	// Name as kubeadm says it (apiserver, etcd-server, admin.conf ...), or
	// kubelet-client.
	Name string `json:"name"`
	// NotBefore is the first day on which it may have been made, 2006-01-02;
	// DaysLeft how many days it must still be good. Either may be empty.
	NotBefore string `json:"notBefore,omitempty"`
	DaysLeft  int    `json:"daysLeft,omitempty"`
}

// Requirement says in words what is asked of a certificate; it is the field's value
// when the certificate is so. A certificate that is not so has its days as
// value, which begin with a digit and so come before these words.
func (c ConfigCertificate) Requirement() string {
	var parts []string
	if c.NotBefore != "" {
		parts = append(parts, "made on "+c.NotBefore+" or later")
	}
	if c.DaysLeft > 0 {
		parts = append(parts, fmt.Sprintf("at least %d days left", c.DaysLeft))
	}
	return strings.Join(parts, ", ")
}

// Paths of a node's fields.
const (
	FieldFile         = "file/" // and the path: file//etc/motd
	FieldUnit         = "unit/"
	FieldProgram      = "program/"
	FieldCertificate  = "certificate/"
	FieldKubelet      = "kubelet/config"
	FieldCNI          = "cni/plugins"
	FieldSandboxImage = "runtime/sandbox-image"
	// FieldFilesDrift says which files and units are not as refit made them, although
	// they are wanted so still; empty for none.
	FieldFilesDrift = "files/drift"
	// FieldFilesReport and FieldFilesRepair are in place of it if parts have policies of their
	// own: what is reported, and what an update or the agent repairs.
	FieldFilesReport = "files/drift/report"
	FieldFilesRepair = "files/drift/repair"
	// FieldDriftPolicy is NodeConfig.Drift as the agent follows it.
	FieldDriftPolicy = "drift/policy"
	// FieldOSDrift begins the fields of what is not as the OS image has it; the kind
	// follows. FieldOSLeft is the desired digest that refit had booted, if an
	// administrator rolled the node back from it. FieldOSFailed is why the node rolled
	// itself back from the desired image.
	FieldOSDrift  = "os/drift/"
	FieldOSLeft   = "os/left"
	FieldOSFailed = "os/failed"
	// FieldOSDriver is how the OS is updated: bootc, rpm-ostree, ostree, sysext or package.
	// FieldOSPolicy is the answer of the host's signature policy about the desired image.
	// FieldOSSELinux is ValueEnforcing on a host whose kernel enforces an SELinux policy.
	FieldOSDriver  = "os/driver"
	FieldOSPolicy  = "os/signature-policy"
	FieldOSSELinux = "os/selinux"
	// FieldOSBootFallback lists what the host needs so that it returns by itself from an
	// image that does not come up, with commas; ValueComplete if nothing is missing.
	FieldOSBootFallback = "os/boot-fallback"
	// FieldOSAgent is ValueCarried if the node keeps its agent over an OS image without one.
	FieldOSAgent = "os/agent"
	// FieldOSStock is what the node ran before refit booted its first image: repository@digest,
	// or ValueNone, a colon and why no pool can boot it. FieldOSHistory lists what it has
	// booted since: time, image and result, with semicolons, the newest last.
	FieldOSStock   = "os/stock"
	FieldOSHistory = "os/history"
	// FieldOSImage has the digest that is booted as value, FieldKernelArguments
	// refit's own arguments joined by blanks.
	FieldOSImage = "os/image"
	// FieldOSUnsupported is why the OS of a node cannot be moved.
	FieldOSUnsupported = "os/unsupported"
	// FieldOSPrepared is the name of the configuration whose image is staged before the
	// node is cordoned, or ValueNone; an agent that stages none does not report it.
	// FieldOSProblem is why it is not staged.
	FieldOSPrepared = "os/prepared"
	FieldOSProblem  = "os/prepare-problem"
	// FieldManifestChanges names what in the static pods of the control plane differs from
	// kubeadm's manifests. FieldManifestProblem is why kubeadm's dry run writes none.
	FieldManifestChanges = "control-plane/manifest-changes"
	FieldManifestProblem = "control-plane/manifest-problem"
	FieldKernelArguments = "os/kernel-arguments"
	// FieldDatastore of a server of k3s, RKE2 or k0s is one of the Datastore constants.
	FieldDatastore = "supervisor/datastore"
	// FieldServers of a server of k0s is how many servers its datastore has: not all of them
	// need to be nodes.
	FieldServers = "supervisor/servers"
)

// Datastores of a server: embedded etcd, a file of SQLite, or one outside of the node.
const (
	DatastoreEtcd   = "etcd"
	DatastoreSQLite = "sqlite"
	DatastoreOther  = "other"
)

// Results in a node's history of images: it was not well with the image, or the image is what it
// returned to.
const (
	OSFailed   = "failed"
	OSReturned = "returned"
)

// Values of fields: no kernel arguments of refit, or an absent part; a file that must be
// absent and is; a file as the booted image has it. ValueComplete is a host that needs nothing
// more, ValueCarried an agent that outlives the image that it is in. ValueEnforcing is a policy that
// the kernel enforces.
const (
	ValueNone     = "none"
	ValueAbsent   = "absent"
	ValueAsImage  = "as the image has it"
	ValueComplete = "complete"
	ValueCarried  = "carried"

	ValueEnforcing = "enforcing"
)

// DigestOf is sha256:<hex> of some bytes.
func DigestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// FileValue is the value of a file's field.
func FileValue(digest string, mode uint32, owner, group string) string {
	return fmt.Sprintf("%s %04o %s:%s", digest, mode, owner, group)
}

// Value of the file's field when the node is as wanted.
func (f ConfigFile) Value() string {
	switch {
	case f.AsImage:
		return ValueAsImage
	case f.Absent:
		return ValueAbsent
	}
	return FileValue(f.Content(), f.Mode, f.Owner, f.Group)
}

// Content is the digest of the file's bytes, wherever they come from.
func (f ConfigFile) Content() string {
	if f.Payload != "" {
		return f.Digest
	}
	return DigestOf(f.Data)
}

// MaxFile is how large a file of a configuration may be, in bytes: the replaced file is
// kept next to it.
const MaxFile = 8 << 20

// Fields are the node's fields as this configuration wants them.
func (c NodeConfig) Fields() map[string]string {
	out := map[string]string{}
	for _, f := range c.Files {
		out[FieldFile+f.Path] = f.Value()
	}
	for _, u := range c.Units {
		out[FieldUnit+u.Name] = u.State
	}
	for _, k := range c.Certificates {
		out[FieldCertificate+k.Name] = k.Requirement()
	}
	if c.Kubelet != "" {
		out[FieldKubelet] = DigestOf([]byte(c.Kubelet))
	}
	if c.SandboxImage != "" {
		out[FieldSandboxImage] = c.SandboxImage
	}
	for _, f := range c.External {
		out[f.Path] = f.Value
	}
	if c.OS != nil {
		if d := c.OS.Digest(); d != "" {
			out[FieldOSImage] = d
		}
		out[FieldKernelArguments] = c.OS.ArgumentsValue()
	}
	return out
}

// DisruptionOf is what a change of one of the configuration's fields does to the
// node; DisruptionNone for a field that is not its own.
func (c NodeConfig) DisruptionOf(field string) Disruption {
	for _, f := range c.Files {
		if field == FieldFile+f.Path {
			return f.Disruption
		}
	}
	for _, u := range c.Units {
		if field == FieldUnit+u.Name {
			return u.Disruption
		}
	}
	if field == FieldKubelet || field == FieldSandboxImage || strings.HasPrefix(field, FieldCertificate) {
		return DisruptionRestart
	}
	if field == FieldOSImage || field == FieldKernelArguments {
		return DisruptionReboot
	}
	return DisruptionNone
}

// Empty reports whether nothing is wanted.
func (c NodeConfig) Empty() bool {
	return len(c.Files)+len(c.Units)+len(c.Certificates)+len(c.External) == 0 && c.Kubelet == "" && c.SandboxImage == "" && c.OS == nil && len(c.Packages) == 0
}

// JSON is the canonical text.
func (c NodeConfig) JSON() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // it holds only strings, numbers and bytes
	}
	return b
}
