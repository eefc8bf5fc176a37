package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Sources of a track.
const (
	// SourceRegistry: the repository, or a mirror of it.
	SourceRegistry = "Registry"
	// SourceBundles: the approved bundles in the cluster. Without a registry only
	// applying a bundle moves tags.
	SourceBundles = "Bundles"
)

// Actions of a track on digests that it may apply.
const (
	// ModePropose: a patch is written to a ConfigMap; nothing is changed.
	ModePropose = "Propose"
	// ModeWrite: the digest is written into the workloads.
	ModeWrite = "Write"
)

// Tiers of tags.
const (
	TierShort        = "Short"
	TierIntermediate = "Intermediate"
	TierLong         = "Long"
)

// Classes of a change, mildest first.
const (
	ClassSecurity           = "SecurityRebuild"    // rebuilt for a known security fix
	ClassRebuild            = "Rebuild"            // same version, same definition, built again
	ClassImageFix           = "ImageFix"           // same version, the definition was fixed
	ClassNewVersion         = "NewVersion"         // another version of the application
	ClassUnordered          = "Unordered"          // it cannot be shown which is newer
	ClassBackwards          = "Backwards"          // older than what runs
	ClassTagVersionMismatch = "TagVersionMismatch" // the version inside is not the one in the tag
	ClassAdopt              = "Adopt"              // the bytes that run already, not yet named by digest
)

// Decisions about a candidate.
const (
	DecisionAutomatic = "Automatic"
	DecisionApproved  = "Approved"
	DecisionWaits     = "Waits" // until it is old enough, or a freeze is over
	DecisionApproval  = "NeedsApproval"
	DecisionBlocked   = "Blocked"
	// TargetBlocked is the state of a workload that waits for a person.
	TargetBlocked = "Blocked"
)

// TrackFollow is the tag to follow.
//
// +kubebuilder:validation:XValidation:rule="has(self.tag) != has(self.tier)",message="set exactly one of tag (one pointer, for example 2.6.2-rev1) and tier (the newest pointer of a tier in a range of versions)"
// +kubebuilder:validation:XValidation:rule="!has(self.versions) || has(self.tier)",message="versions needs tier: a single tag has one version"
type TrackFollow struct {
	// Tag that is followed.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9._-]*$')",message="must be a tag without the repository: letters, digits, dot, dash and underscore"
	Tag string `json:"tag,omitempty"`
	// Tier whose newest tag is followed.
	// +optional
	// +kubebuilder:validation:Enum=Short;Intermediate;Long
	Tier string `json:"tier,omitempty"`
	// Versions of the application that count, for example ~2.6. Empty is all.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Versions string `json:"versions,omitempty"`
	// SkipVersions allows a change over minor versions that the repository has in
	// between. By default a track takes one minor version after the other, of each the
	// newest tag.
	// +optional
	SkipVersions bool `json:"skipVersions,omitempty"`
}

// TrackTarget selects workloads. The track applies to each of their containers whose
// image is of its repository.
type TrackTarget struct {
	// Kind of the workload. A StaticPod is written by the agents of its nodes, one
	// node after the other; those of kubeadm are not: a ClusterUpdate moves them.
	// +kubebuilder:validation:Enum=Deployment;DaemonSet;StatefulSet;CronJob;StaticPod
	Kind string `json:"kind"`
	// Namespace of the workload.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the workload; of a static pod without the node's name. Empty is
	// every one that Selector matches.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Selector of the workloads' own labels; neither name nor selector is every
	// workload of the kind in the namespace.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// TrackApproval is a person's approval of one digest. It ends when the tag moves
// again, or after a rollback from it.
type TrackApproval struct {
	// Digest of the candidate.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.size() == 71 && self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 lower-case hex digits, as status.candidates has it; a tag cannot be approved, it can move"
	Digest string `json:"digest"`
	// Serial of the candidate at its approval, from status.candidates. A candidate with
	// a higher one changed after the approval.
	// +kubebuilder:validation:Minimum=1
	Serial int64 `json:"serial"`
	// AnyOrder lets it be older than what runs, or of unknown age.
	// +optional
	AnyOrder bool `json:"anyOrder,omitempty"`
	// ApprovedBy and Reason are for people.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ApprovedBy string `json:"approvedBy,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// TrackRefusal is a digest that is never taken, until the entry is removed. To
// refuse what runs is to roll back to what ran before.
type TrackRefusal struct {
	// Digest that is refused.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.size() == 71 && self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 lower-case hex digits"
	Digest string `json:"digest"`
	// Reason for people.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// PullSecret names a Secret of type kubernetes.io/dockerconfigjson.
type PullSecret struct {
	// Name of the Secret in the namespace refit-builds.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ImageTrackSpec is the tag to follow, and which workloads may run its digest.
//
// +kubebuilder:validation:XValidation:rule="!has(self.follow.tier) || !has(self.scheme) || !self.scheme.startsWith('floating')",message="scheme floating has no tiers and no order: follow one tag"
// +kubebuilder:validation:XValidation:rule="!has(self.source) || self.source != 'Bundles' || (!has(self.mirrors) && !has(self.pullSecret))",message="mirrors and pullSecret are for source Registry: bundles are read from the nodes that hold them"
// +kubebuilder:validation:XValidation:rule="!has(self.requestReboot) || !self.requestReboot || has(self.nodeMarks) && self.nodeMarks",message="requestReboot needs nodeMarks: the mark of a node says that its pods are about to take the image"
type ImageTrackSpec struct {
	// Repository with its registry, without a tag, for example registry.example/shop/app.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+$')",message="must be a registry and a path without tag or digest, for example registry.example/shop/app"
	Repository string `json:"repository"`
	// Source: Registry, or Bundles for the bundles in the cluster.
	// +optional
	// +kubebuilder:default=Registry
	// +kubebuilder:validation:Enum=Registry;Bundles
	Source string `json:"source,omitempty"`
	// Mirrors are repositories with the same images, asked first, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=255
	Mirrors []string `json:"mirrors,omitempty"`
	// PullSecret for the controller's own requests to the registry, and for nodes to
	// fetch with if no pod of the targets has imagePullSecrets. A node's kubelet reads
	// it while it fetches, like any pod's pull secret.
	// +optional
	PullSecret *PullSecret `json:"pullSecret,omitempty"`
	// Scheme of the tags, as for `refit tags compare --scheme`. It is rev
	// (2.6.2-rev1-b5.1), dotted, dashed, release, distro-r, single, semver, date or
	// floating, with the variants of the repository (rev:alpine,slim). Or regexp: and an
	// expression with the groups app, variant, rev, build. It is declared, never guessed.
	// +optional
	// +kubebuilder:default=rev
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(rev|dotted|dashed|release|distro-r|single|semver|date|floating)(:[A-Za-z0-9._,-]+)?$') || self.startsWith('regexp:')",message="must be rev, dotted, dashed, release, distro-r, single, semver, date or floating, with variants if the repository has some (rev:alpine,slim), or regexp: and an expression with the groups app, variant, rev, build"
	Scheme string `json:"scheme,omitempty"`
	// Follow is the tag to follow.
	Follow TrackFollow `json:"follow"`
	// Automatic are the classes that may move by themselves; all others need an
	// approval. Of node-critical workloads (kube-system's, host network, system
	// priority) only security rebuilds may.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=SecurityRebuild;Rebuild;ImageFix;NewVersion
	Automatic []string `json:"automatic,omitempty"`
	// MinAgeSeconds since a candidate was first seen before it moves by itself.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7776000
	MinAgeSeconds int32 `json:"minAgeSeconds,omitempty"`
	// Freeze stops all changes; the controller still polls the registry and reports.
	// +optional
	Freeze bool `json:"freeze,omitempty"`
	// IntervalSeconds between two polls of the followed tag.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// DiscoverSeconds between two listings of the repository, for new tags of the
	// tier. All tracks of a repository share a listing.
	// +optional
	// +kubebuilder:default=21600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	DiscoverSeconds int32 `json:"discoverSeconds,omitempty"`
	// Targets are the workloads that run the image.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Targets []TrackTarget `json:"targets,omitempty"`
	// Mode: Propose writes a patch to ConfigMap refit-nodes/track-NAME, Write
	// changes the workloads. What Argo CD, Flux or Helm own is only ever proposed.
	// +optional
	// +kubebuilder:default=Propose
	// +kubebuilder:validation:Enum=Propose;Write
	Mode string `json:"mode,omitempty"`
	// Windows in which changes may start; none is always. A workload, a node's static pod
	// or an eviction starts only if its last duration fits into the rest of the window.
	// Started changes finish.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`
	// Drain cordons and drains a node before its pod of a DaemonSet, or its static pod, is
	// replaced, and uncordons it when the new pod is Ready. It is for network agents whose pods
	// the traffic of the node passes. One node goes after the other. A DaemonSet needs the
	// updateStrategy OnDelete.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.timeoutSeconds)",message="timeoutSeconds is for ClusterUpdates: a track waits, and its status names the pod"
	Drain *DrainOptions `json:"drain,omitempty"`
	// ReadySeconds is how long a static pod may take to become ready with a new image.
	// After that the agent restores the old manifest, and no other node starts.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=3600
	ReadySeconds int32 `json:"readySeconds,omitempty"`
	// Retry is raised by a person to have nodes tried again on which a static pod
	// has failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retry int32 `json:"retry,omitempty"`
	// Preload fetches a digest to the nodes that run the workloads before these restart:
	// from bundles, or from the registry by the nodes' runtimes. If the pods of the
	// targets have imagePullSecrets, or the track has a pullSecret, the kubelets fetch
	// with those: a short Job per node, which runs nothing.
	// +optional
	// +kubebuilder:default=true
	Preload *bool `json:"preload,omitempty"`
	// NodeMarks annotates each Node whose pods of the targets do not run the newest image:
	// updates.refit.dev/TRACK with "security", "recommended", "disruptive" or "available",
	// and the image's long tag. With mode Propose nothing else changes.
	// +optional
	NodeMarks bool `json:"nodeMarks,omitempty"`
	// RequestReboot asks for a reboot of each node whose pods have taken an image with the mark
	// "disruptive": one whose start does not suffice, such as a loader of kernel modules. The agent
	// writes /run/reboot-required for a reboot daemon. The reboot ends the request.
	// +optional
	RequestReboot bool `json:"requestReboot,omitempty"`
	// Approvals by digest.
	// +optional
	// +listType=map
	// +listMapKey=digest
	// +kubebuilder:validation:MaxItems=32
	Approvals []TrackApproval `json:"approvals,omitempty"`
	// Refused digests.
	// +optional
	// +listType=map
	// +listMapKey=digest
	// +kubebuilder:validation:MaxItems=64
	Refused []TrackRefusal `json:"refused,omitempty"`
}
