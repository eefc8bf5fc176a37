package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrackedImage is one image that a track knows.
type TrackedImage struct {
	// Digest of its index or manifest.
	Digest string `json:"digest"`
	// Tag that is followed, and the long tag that names this build, if one does.
	Tag string `json:"tag"`
	// +optional
	LongTag string `json:"longTag,omitempty"`
	// AppVersion found inside.
	// +optional
	AppVersion string `json:"appVersion,omitempty"`
	// Security: the image declares that it was rebuilt for a known security fix.
	// +optional
	Security bool `json:"security,omitempty"`
	// Severity that the image declares: recommended or disruptive.
	// +optional
	Severity string `json:"severity,omitempty"`
	// Fixes are the vulnerabilities that its release record names. Its signature is not verified.
	// +optional
	// +listType=atomic
	Fixes []string `json:"fixes,omitempty"`
	// ManifestsChange: its release record says that manifests change with it, so it does not
	// move by itself.
	// +optional
	ManifestsChange bool `json:"manifestsChange,omitempty"`
	// Same are the digests under it that a runtime may report instead: platform
	// manifests, configurations.
	// +optional
	// +listType=atomic
	Same []string `json:"same,omitempty"`
	// SizeBytes is what a node fetches by its manifest; 0 if unknown.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// ObservedAt is when it was first seen, or when it was taken.
	// +optional
	ObservedAt *metav1.Time `json:"observedAt,omitempty"`
}

// TrackedTag is a pointer and what is behind it.
type TrackedTag struct {
	TrackedImage `json:",inline"`
	// Serial of the track when the tag got this digest.
	Serial int64 `json:"serial"`
	// Deleted: the tag was deleted.
	// +optional
	Deleted bool `json:"deleted,omitempty"`
}

// UpstreamTag is a tag as the repository itself answers it.
type UpstreamTag struct {
	Tag string `json:"tag"`
	// Digest that the mirror does not answer yet.
	Digest string `json:"digest"`
}

// TrackCandidate is an image that could be taken, and what is thought of it.
type TrackCandidate struct {
	Digest string `json:"digest"`
	Tag    string `json:"tag"`
	// +optional
	LongTag string `json:"longTag,omitempty"`
	// Class of the change from what runs.
	Class string `json:"class"`
	// Decision and why.
	Decision string `json:"decision"`
	Why      string `json:"why"`
	// Severity that the image declares: recommended or disruptive. What is disruptive
	// never moves by itself.
	// +optional
	Severity string `json:"severity,omitempty"`
	// Fixes are the vulnerabilities that its release record names.
	// +optional
	// +listType=atomic
	Fixes []string `json:"fixes,omitempty"`
	// Skips are minor versions that the repository has between what runs and this image.
	// +optional
	// +listType=atomic
	Skips []string `json:"skips,omitempty"`
	// Serial that an approval must name.
	Serial int64 `json:"serial"`
	// Since when it is known.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// RolledBack is a digest that was rolled back.
type RolledBack struct {
	Digest string `json:"digest"`
	// To what.
	To string `json:"to"`
	// Actor spec (refused) or a workload that was rolled back.
	Actor string `json:"actor"`
	// Serial is the approval's serial when it was found: only a later approval applies
	// it again.
	Serial int64 `json:"serial"`
	// +optional
	ObservedAt *metav1.Time `json:"observedAt,omitempty"`
}

// RunningDigest is one digest that pods of the targets run.
type RunningDigest struct {
	Digest string `json:"digest"`
	// +optional
	LongTag string `json:"longTag,omitempty"`
	Pods    int32  `json:"pods"`
	// Nodes, the first 16 by name.
	// +listType=atomic
	Nodes []string `json:"nodes"`
}

// TrackedWorkload is how far one target is.
type TrackedWorkload struct {
	// Workload as Kind/namespace/name.
	Workload string `json:"workload"`
	// State: Current, Waiting, Preloading, Rolling, Proposed, Blocked, OnNextRun.
	State string `json:"state"`
	// Digest in its template at the last observation: if an earlier one returns, the
	// workload was rolled back.
	// +optional
	Digest string `json:"digest,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// RollingSince is when its roll-out began, none while there is none; TookSeconds
	// is how long the last one took: of a static pod the longest on one node.
	// +optional
	RollingSince *metav1.Time `json:"rollingSince,omitempty"`
	// +optional
	TookSeconds int32 `json:"tookSeconds,omitempty"`
}

// TrackTurn is the node whose static pod is written, or that is drained, now. Of all tracks together
// one has a turn.
type TrackTurn struct {
	// Workload as Kind/namespace/name.
	Workload string `json:"workload"`
	Node     string `json:"node"`
}

// Results of a TrackRelease.
const (
	// ReleaseRolling: not all targets have it yet.
	ReleaseRolling = "Rolling"
	// ReleaseProposed: what is left belongs to others.
	ReleaseProposed = "Proposed"
	// ReleaseHalted: it continues after the fix in the message.
	ReleaseHalted = "Halted"
	// ReleaseDone: every target has it.
	ReleaseDone = "Done"
	// ReleaseReplaced: another one was taken before it was done.
	ReleaseReplaced = "Replaced"
	// ReleaseRolledBack: it was rolled back.
	ReleaseRolledBack = "RolledBack"
)

// TrackRelease is the record of one image that a track has taken.
type TrackRelease struct {
	// Digest, and the long tag that names the build.
	Digest string `json:"digest"`
	// +optional
	LongTag string `json:"longTag,omitempty"`
	// From is the digest that was approved before; none at the beginning.
	// +optional
	From string `json:"from,omitempty"`
	// +optional
	FromLongTag string `json:"fromLongTag,omitempty"`
	// Class of the change, none for a way back.
	// +optional
	Class string `json:"class,omitempty"`
	// Actor of the decision, with its reason: the name in the approval, automatic,
	// spec.refused, or the workload that was rolled back by hand.
	Actor string `json:"actor"`
	// TakenAt, StartedAt (the first target started) and EndedAt.
	TakenAt metav1.Time `json:"takenAt"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Result: Rolling, Proposed, Halted, Done, Replaced, RolledBack.
	Result string `json:"result"`
	// +optional
	Message string `json:"message,omitempty"`
}

// PollError is why the last poll failed.
type PollError struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Since when it fails.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Count of the polls without an answer, one after the other. It stops when the failure
	// persists: at the third one, or at the second one if it is ten minutes after the first.
	// Before, conditions only name it. Absent if the registry answered, for example that it
	// has no such tag.
	// +optional
	Count int32 `json:"count,omitempty"`
	// Last is the time of the last poll that was counted.
	// +optional
	Last *metav1.Time `json:"last,omitempty"`
}

// ImageTrackStatus is the whole state of a track. A poll without news does not
// change it.
type ImageTrackStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Serial counts what happened: tags that moved, roll-backs.
	// +optional
	Serial int64 `json:"serial,omitempty"`
	// Endpoint is the repository or the bundle that answered last.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// Tags that are followed, with their last digest.
	// +optional
	// +listType=map
	// +listMapKey=tag
	Tags []TrackedTag `json:"tags,omitempty"`
	// MinorVersions that the repository has above the oldest image in this status, in
	// ascending order, at most 64. A track takes one after the other.
	// +optional
	// +listType=atomic
	MinorVersions []string `json:"minorVersions,omitempty"`
	// Upstream is what the repository itself answers for followed tags, where a mirror
	// answered first and names another image.
	// +optional
	// +listType=map
	// +listMapKey=tag
	Upstream []UpstreamTag `json:"upstream,omitempty"`
	// DeletedDigests are digests that no registry of the track has any more, although they
	// are approved, named by a workload or retained for a rollback. A node that lost such
	// an image cannot pull it.
	// +optional
	// +listType=set
	DeletedDigests []string `json:"deletedDigests,omitempty"`
	// Candidates that could be taken now.
	// +optional
	// +listType=atomic
	Candidates []TrackCandidate `json:"candidates,omitempty"`
	// Approved is the digest that the targets are to run.
	// +optional
	Approved *TrackedImage `json:"approved,omitempty"`
	// History of earlier approvals, the latest first. A roll-back returns to the first,
	// which stays on the nodes.
	// +optional
	// +listType=atomic
	History []TrackedImage `json:"history,omitempty"`
	// RolledBack digests, not taken again by themselves.
	// +optional
	// +listType=map
	// +listMapKey=digest
	RolledBack []RolledBack `json:"rolledBack,omitempty"`
	// Running digests of the targets' pods.
	// +optional
	// +listType=atomic
	Running []RunningDigest `json:"running,omitempty"`
	// Preloaded nodes of those that run the targets, as "done/wanted".
	// +optional
	Preloaded string `json:"preloaded,omitempty"`
	// Workloads of the targets.
	// +optional
	// +listType=atomic
	Workloads []TrackedWorkload `json:"workloads,omitempty"`
	// MarkedNodes is how many nodes have the mark of spec.nodeMarks.
	// +optional
	MarkedNodes int32 `json:"markedNodes,omitempty"`
	// Turn is the node whose static pod is written, or that is drained, now.
	// +optional
	Turn *TrackTurn `json:"turn,omitempty"`
	// Releases are the records of what was taken, the latest first, at most 20.
	// +optional
	// +listType=atomic
	Releases []TrackRelease `json:"releases,omitempty"`
	// PollError of the last poll, absent if it succeeded.
	// +optional
	PollError *PollError `json:"pollError,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Skewed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
