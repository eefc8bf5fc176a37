package gate

import (
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// FileSystem is the room of one place on a node, in bytes.
type FileSystem struct {
	Name, ID string
	Free     int64
}

// LoadedContent is what a node reports to hold.
type LoadedContent struct {
	// Content is the hold list that the report is about.
	Content                                string
	ImagesTotal, ImagesReady, ImagesPinned int32
	PayloadsTotal, PayloadsReady           int32
	// MissingImages are images that the node's updaters need and no bundle has.
	MissingImages []string
	// Needed is the room still needed in bytes, by file system name.
	Needed map[string]int64
}

// Certificate is a file with its last moment.
type Certificate struct {
	Name     string
	NotAfter time.Time
}

// Etcd is what the member on a node says of itself; sizes in bytes, 0 if
// unknown.
type Etcd struct {
	Healthy            bool
	Message            string
	Size, InUse, Quota int64
}

// AgentInfo is what a node's agent says of itself.
type AgentInfo struct {
	Version           string
	Updaters, Formats []string
}

// Node is what the gate needs of a node. A caller that passes findings in again
// changes no Node: another fact is another Node.
type Node struct {
	Name         string
	ControlPlane bool
	// InPlan is true if the plan moves the node. Others must hold the images
	// too: the cluster's own pods run everywhere.
	InPlan bool
	// Planned is true if the plan has steps for the node. InPlan is also true for all nodes of a plan
	// without any.
	Planned bool
	// Misfits are its platform, runtime and versions that the bundle is not made for.
	Misfits []model.Blocker
	// Drained is true if the plan empties the node.
	Drained bool
	Ready   bool
	// Pressure names what the node is short of: DiskPressure, MemoryPressure,
	// PIDPressure.
	Pressure []string
	// ForeignCordon is true if the node is cordoned, but not by refit.
	ForeignCordon bool
	// AgentKnown is true once an agent has reported; Heartbeat is when it last did.
	AgentKnown bool
	Heartbeat  time.Time
	// Agent is what it says of itself, Needs what the plan asks of it, nil if nothing.
	Agent AgentInfo
	Needs *Needs
	// HeartbeatSeconds is how often it is asked to, 0 is every minute.
	HeartbeatSeconds int32
	// WantPinSet is the hold list the node was given; HoldsBundle is true if that
	// list has everything of the update's bundle.
	WantPinSet      string
	PinSetHasBundle bool
	// WantImages and WantPayloads are the lengths of that list.
	WantImages, WantPayloads int
	Loaded                   *LoadedContent
	FileSystems              []FileSystem
	// Stalled is what the agent says stops it, nil if nothing.
	Stalled *model.Blocker
	// Certificates of the node, those that end first.
	Certificates []Certificate
	// Etcd is nil on a node without a member. Snapshot is how many bytes a snapshot of
	// it takes before the node moves, 0 if the plan takes none.
	Etcd     *Etcd
	Snapshot int64
	// Skew is how far the node's clock is ahead of the API server's; SkewKnown is false if
	// it was not measured.
	Skew      time.Duration
	SkewKnown bool
	// Drift is what is not as refit made it.
	Drift []Drift
	// Host has the node's facts for an OS image.
	Host Host
	// Busy is for whom the node is still at work, or marked: an update that is no more, or
	// an ImageTrack. Empty if the node is idle.
	Busy string
	// PullVerification is the kubelet's policy for images that are on the node.
	PullVerification string
	// HealthUnknown is true if its agent is known and says nothing of the node's health.
	HealthUnknown bool
}

// Host is what matters to an OS image about a node; empty is unknown.
type Host struct {
	// Platform for example linux/arm64, Kernel is the version that runs.
	Platform, Kernel string
	// Driver is how its OS is updated, Policy the answer of its signature policy.
	Driver, Policy string
	// BootFallback are the requirements of a fallback at boot that it does not meet. They are
	// known if its agent reported them.
	BootFallback      []string
	BootFallbackKnown bool
	// Enforcing: its kernel enforces an SELinux policy.
	Enforcing bool
	// KeepsAgent: its agent outlives the boot into an image without one.
	KeepsAgent bool
	// Kubelet is its version.
	Kubelet string
}

// RemovedAPI is an API that a client requested since the API server started.
type RemovedAPI struct {
	Group, Version, Resource, Subresource string
	// RemovedIn is the minor version that does not serve it, for example 1.37.
	RemovedIn string
}

// Webhook is an admission webhook that fails closed and is served by pods.
type Webhook struct {
	// Configuration as kind/name, and the name of the webhook in it.
	Configuration, Name string
	// Service as namespace/name.
	Service string
	// Nodes that its ready backends run on.
	Nodes []string
	// OwnPods is true if it is asked also about the pods of its own backend, so
	// that these cannot come back once they are gone.
	OwnPods bool
	// Pods is true if it is asked about pods that are made.
	Pods bool
	// Vital is true if it is asked about what an update must write: nodes,
	// evictions, leases, refit's own objects.
	Vital bool
}

// Pulls are the settings that send a node to a registry although it has the image.
type Pulls struct {
	// AlwaysAdmission names the API servers with the admission plugin
	// AlwaysPullImages.
	AlwaysAdmission []string
	// AlwaysPods counts the pods with imagePullPolicy Always; Always are the first of
	// them as namespace/name, or who makes them.
	AlwaysPods int
	Always     []string
	// Resolvers ask a registry what an image is.
	Resolvers []Resolver
}

// Resolver is an admission webhook or a controller that asks a registry about images.
type Resolver struct {
	// Object as kind/namespace/name.
	Object       string
	Message, Fix string
}

// ImageRisk is a reference or pull policy of something that a node needs, which
// does not bear a restart.
type ImageRisk struct {
	// Rule of the lint: T02 asks a registry, T01 may run another image.
	Rule string
	// Object as kind/namespace/name, Container of it, Image as written.
	Object, Container, Image string
	// Always: it does not start without a registry.
	Always       bool
	Message, Fix string
}

// Argument is a dangerous kernel argument that nodes of a pool get; Why it is dangerous.
type Argument struct{ Pool, Argument, Why string }

// Input has all facts of the gate.
type Input struct {
	Now time.Time
	// Bundle is the digest, Approved whether it may be loaded; if not, Approval
	// says why.
	Bundle   string
	Approved bool
	Approval *model.Blocker
	// Plan is what the planner said.
	PlanBlockers, PlanWarnings []model.Blocker
	PlanDigest                 string
	// TargetKubernetes is the version that the plan leads to, empty if it does
	// not change it.
	TargetKubernetes string
	// Arguments are the dangerous kernel arguments that the plan adds.
	Arguments []Argument
	// Lasts is a careful guess of how long the update takes.
	Lasts time.Duration
	// ApprovedPlan is the digest a person approved, empty if any will do.
	ApprovedPlan string
	// Running is the name of another update that has started, empty if none.
	Running string
	Nodes   []*Node
	// DrainWarnings are what the drain's own look ahead found (package drain):
	// budgets that can never be met, pods that nothing would make again.
	DrainWarnings []model.Blocker
	RemovedAPIs   []RemovedAPI
	Webhooks      []Webhook
	Pulls         Pulls
	// Images are what the lint of image references found about things that a node
	// needs.
	Images []ImageRisk
	// BootImages are sources of machines whose boot image is too old for the target.
	BootImages []BootImage
	// BootImageGaps are why rules about boot images are not checked.
	BootImageGaps []BootImageGap
	// OSImages that nodes boot by the plan.
	OSImages []OSImage
	// OSBuilds are builds of images that refit cannot make, for pools of the plan.
	OSBuilds []OSBuild
	// Health is what the health checks of the pools in the plan found.
	Health []model.Blocker
	// Unknown are facts that could not be read, by the name of the check that
	// needs them, with what was asked and what came back.
	Unknown map[string]string
	// Pending are checks whose facts are being read: they wait for them.
	Pending map[string]bool
	// Accepted risks.
	Accepted []Risk

	// answers of the nodes; only DecideFrom sets them, in its own copy.
	answers *answers
}
