package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineManager is an object that creates machines.
type MachineManager struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// DeclaredImage is the image that machines start from, as a person declares it.
//
// +kubebuilder:validation:XValidation:rule="has(self.release) || has(self.os)",message="declare the release, the OS version, or both"
type DeclaredImage struct {
	// Release that the image belongs to.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Release string `json:"release,omitempty"`
	// OS version in the image, from its /etc/os-release or aleph file.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OS string `json:"os,omitempty"`
}

// ImageRollback is a person's decision that new machines start from an earlier image again.
type ImageRollback struct {
	// To is the earlier image, as its platform names it: one of the history.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	To string `json:"to"`
	// Rejected is the image that was in use. The rollback ends when a stream has a
	// newer one.
	Rejected BootImage `json:"rejected"`
	// Reason, By and At are for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	By string `json:"by,omitempty"`
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}

// CanaryDecision is a person's decision about an image with which canaries failed.
type CanaryDecision struct {
	// Image that it is about, as its platform names it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// Action: Retry forgets the failures until At, Accept writes the image without a canary.
	// +kubebuilder:validation:Enum=Retry;Accept
	Action string `json:"action"`
	// Reason and By are for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	By string      `json:"by,omitempty"`
	At metav1.Time `json:"at"`
}

// CanaryFailure is a machine that could not be used with a new image.
type CanaryFailure struct {
	At metav1.Time `json:"at"`
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

// SourceCanary is the canary of the wanted image.
type SourceCanary struct {
	// Image that it is for, and the OS version in it.
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// +optional
	OS string `json:"os,omitempty"`
	// Object is the temporary machine manager, as Kind/name, while there is one.
	// +optional
	Object string `json:"object,omitempty"`
	// Machine of it, as namespace/name.
	// +optional
	Machine string `json:"machine,omitempty"`
	// PassedAt is when it has passed.
	// +optional
	PassedAt *metav1.Time `json:"passedAt,omitempty"`
	// Failures, the last one last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Failures []CanaryFailure `json:"failures,omitempty"`
}

// MachineSourceSpec is where machines come from.
//
// +kubebuilder:validation:XValidation:rule="has(self.manager) || has(self.declared)",message="a source has a manager (refit makes those) or says what its machines start from: set declared"
// +kubebuilder:validation:XValidation:rule="has(self.manager) || !has(self.rollback)",message="refit rolls back only what it writes: a source without a manager has no rollback"
type MachineSourceSpec struct {
	// Manager that creates the machines. Written by refit.
	// +optional
	Manager *MachineManager `json:"manager,omitempty"`
	// Declared by a person: for a PXE tree, a golden VM, a stick, or an image that
	// no stream knows. It is compared with what new nodes really booted.
	// +optional
	Declared *DeclaredImage `json:"declared,omitempty"`
	// NodeSelector of the nodes that came from here.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Facts for rules about incompatibilities, in addition to those of the policy.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Facts map[string]string `json:"facts,omitempty"`
	// Rollback to an earlier image (refit bootimage rollback).
	// +optional
	Rollback *ImageRollback `json:"rollback,omitempty"`
	// Canary is the decision about an image with which canaries failed (refit bootimage retry,
	// refit bootimage accept).
	// +optional
	Canary *CanaryDecision `json:"canary,omitempty"`
	// Skew of this source: None accepts the risk for this source only. It is also the
	// decision about a source whose policy was deleted.
	// +optional
	// +kubebuilder:validation:Enum="";Manual;None
	Skew string `json:"skew,omitempty"`
}

// BootImage is one image, as far as it is known.
type BootImage struct {
	// Image as its platform names it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
	// OS version in it, Release it belongs to.
	// +optional
	OS string `json:"os,omitempty"`
	// +optional
	Release string `json:"release,omitempty"`
	// Object with the image, if it is not the manager itself, as Kind/name.
	// +optional
	Object string `json:"object,omitempty"`
}

// InstalledImage is an image that nodes of a source were installed from.
type InstalledImage struct {
	// OS version that the node reports.
	OS string `json:"os"`
	// Nodes with it; Example is one of them.
	Nodes int32 `json:"nodes"`
	// +optional
	Example string `json:"example,omitempty"`
}

// MachineFact is a fact that the nodes of a source report about their machines.
type MachineFact struct {
	// Name of the fact: cpu, shim, grub, loaderBuilt.
	Name string `json:"name"`
	// Least of its values, Nodes with it, and Example, one of them.
	// +optional
	Least string `json:"least,omitempty"`
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// +optional
	Example string `json:"example,omitempty"`
	// Silent is the number of nodes that do not report it.
	// +optional
	Silent int32 `json:"silent,omitempty"`
}

// AuthorityWrite is one time that refit wrote an authority into a configuration.
type AuthorityWrite struct {
	WrittenAt metav1.Time `json:"writtenAt"`
	// To is the fingerprint of the authority.
	To string `json:"to"`
}

// SourceAuthority is what is known of the authority in the first-boot configuration
// of a source.
type SourceAuthority struct {
	// Secret with the configuration, as namespace/name.
	Secret string `json:"secret"`
	// Wanted is the fingerprint of the server's authority.
	// +optional
	Wanted string `json:"wanted,omitempty"`
	// Writes, the last one last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Writes []AuthorityWrite `json:"writes,omitempty"`
}

// RefusedMachine is a machine that could not join.
type RefusedMachine struct {
	// Machine as namespace/name.
	Machine string `json:"machine"`
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

// BootImageWrite is one time that refit wrote an image to the manager.
type BootImageWrite struct {
	WrittenAt metav1.Time `json:"writtenAt"`
	// From and To are the images.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	From string `json:"from,omitempty"`
	// +kubebuilder:validation:MaxLength=1024
	To string `json:"to"`
	// OS version and Release of To.
	// +optional
	OS string `json:"os,omitempty"`
	// +optional
	Release string `json:"release,omitempty"`
	// FromOS and FromRelease are those of From.
	// +optional
	FromOS string `json:"fromOS,omitempty"`
	// +optional
	FromRelease string `json:"fromRelease,omitempty"`
	// FromAttributes and Attributes name From and To as the object does.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	FromAttributes map[string]string `json:"fromAttributes,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Attributes map[string]string `json:"attributes,omitempty"`
	// By is who wanted it: BootImagePolicy/NAME, or the person who rolled it back.
	// +optional
	// +kubebuilder:validation:MaxLength=300
	By string `json:"by,omitempty"`
	// Rollback is true if a person rolled it back, for Reason.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// FromObject and Object are the templates, if there are any.
	// +optional
	FromObject string `json:"fromObject,omitempty"`
	// +optional
	Object string `json:"object,omitempty"`
}

// BootImageUpload is a file that the administrator must upload to its platform before
// machines can start from it.
type BootImageUpload struct {
	// File is its name, SHA256 its sum in the stream.
	// +kubebuilder:validation:MaxLength=512
	File string `json:"file"`
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256"`
	// Region that it is wanted in.
	// +optional
	Region string `json:"region,omitempty"`
	// Payload of the stream's bundle that contains the file, if any.
	// +optional
	Payload string `json:"payload,omitempty"`
	// Steps are commands; words in capitals are to be filled in.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Steps []string `json:"steps,omitempty"`
}

// BootImageWait is why refit does not write the wanted image yet.
type BootImageWait struct {
	// Reason: BootImageTooFresh or BootImageUpdateRunning.
	Reason string `json:"reason"`
	// Image that waits, as its platform names it, and the OS version in it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
	// +optional
	OS string `json:"os,omitempty"`
	// For is the update or the rollout that must end first.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	For string `json:"for,omitempty"`
	// Built is when the image was built, and Until when it has the minimum age.
	// +optional
	Built *metav1.Time `json:"built,omitempty"`
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// SkewFinding is a violated rule.
type SkewFinding struct {
	// Target version.
	Target string `json:"target"`
	Rule   string `json:"rule"`
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
	// PoolOnly: it concerns the machines of this source alone (a rule about incompatible
	// facts), so a control plane does not wait for it.
	// +optional
	PoolOnly bool `json:"poolOnly,omitempty"`
	// Waived is the waiver because of which it refuses nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Waived string `json:"waived,omitempty"`
}

// DeletedPolicy is a BootImagePolicy that was deleted while it selected a source.
type DeletedPolicy struct {
	Name string `json:"name"`
	// SeenAt is when refit saw that it was gone.
	SeenAt metav1.Time `json:"seenAt"`
}

// States of a MachineSource.
const (
	SourceCurrent   = "Current"
	SourceOutdated  = "Outdated"
	SourceSkipped   = "Skipped"
	SourceExcluded  = "Excluded"
	SourceUnknown   = "Unknown"
	SourceContested = "Contested"
	SourceDeclared  = "Declared" // a source without a manager
)

// MachineSourceStatus is the inventory of a source, and all that refit remembers
// of it.
type MachineSourceStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Policy that selects it and the Mode in which.
	// +optional
	Policy string `json:"policy,omitempty"`
	// +optional
	Mode BootImageMode `json:"mode,omitempty"`
	// PolicyDeleted is the policy that selected it, if that was deleted and no other
	// one selects it. Updates to another minor version wait until spec.skew is set or
	// a policy selects it.
	// +optional
	PolicyDeleted *DeletedPolicy `json:"policyDeleted,omitempty"`
	// SkewMode in effect: Automatic, Manual or None.
	// +optional
	SkewMode string `json:"skewMode,omitempty"`
	// State: Current, Outdated, Skipped, Excluded, Unknown, Contested, or Declared
	// for a source without a manager.
	// +optional
	State string `json:"state,omitempty"`
	// OSStream that its machines are of, empty for the default one.
	// +optional
	OSStream string `json:"osStream,omitempty"`
	// Facts of the policy for this source.
	// +optional
	Facts map[string]string `json:"facts,omitempty"`
	// DeclaredSince is when the declaration, DeclaredSeen, was first seen: newer nodes
	// are compared with it. Contradiction is what they report instead.
	// +optional
	DeclaredSince *metav1.Time `json:"declaredSince,omitempty"`
	// +optional
	DeclaredSeen string `json:"declaredSeen,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Contradiction string `json:"contradiction,omitempty"`
	// OldestInstalled is the oldest image that a node was installed from since the
	// declaration. It counts if it is older than the declared one.
	// +optional
	OldestInstalled *InstalledImage `json:"oldestInstalled,omitempty"`
	// Wanted image, Referenced one, and Staged: the template that is ready.
	// +optional
	Wanted *BootImage `json:"wanted,omitempty"`
	// +optional
	Referenced *BootImage `json:"referenced,omitempty"`
	// +optional
	Staged string `json:"staged,omitempty"`
	// Wait of the wanted image, if refit writes it later.
	// +optional
	Wait *BootImageWait `json:"wait,omitempty"`
	// Canary of the wanted image, if the policy has one machine try it first.
	// +optional
	Canary *SourceCanary `json:"canary,omitempty"`
	// Upload that is waited for, if there is one.
	// +optional
	Upload *BootImageUpload `json:"upload,omitempty"`
	// InstalledImages are the images that its nodes were installed from, those of most
	// nodes first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	InstalledImages []InstalledImage `json:"installedImages,omitempty"`
	// Nodes that came from here, as far as it is known, and Joining: machines that
	// have no node yet.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// +optional
	Joining int32 `json:"joining,omitempty"`
	// Machines are the lowest values of the facts that its nodes report.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Machines []MachineFact `json:"machines,omitempty"`
	// Refused are machines that could not join because of their boot image.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Refused []RefusedMachine `json:"refused,omitempty"`
	// Authority of its first-boot configuration, if the policy manages it.
	// +optional
	Authority *SourceAuthority `json:"authority,omitempty"`
	// Proposal is the JSON patch that would set the image on the manager, where others
	// write it.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Proposal string `json:"proposal,omitempty"`
	// ProposalObject is what the patch is for.
	// +optional
	ProposalObject string `json:"proposalObject,omitempty"`
	// History of writes, the last one last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	History []BootImageWrite `json:"history,omitempty"`
	// Skew are the violated rules for the running and the next versions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Skew []SkewFinding `json:"skew,omitempty"`
	// Conditions: Ready, NewEnough, AuthorityCurrent.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineSource is one place that machines come from. refit creates one for every
// machine manager that a BootImagePolicy selects; people create one for a place
// without a manager.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rms
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Referenced",type=string,JSONPath=`.status.referenced.os`
// +kubebuilder:printcolumn:name="Wanted",type=string,JSONPath=`.status.wanted.os`
// +kubebuilder:printcolumn:name="Skew",type=string,JSONPath=`.status.skewMode`
// +kubebuilder:printcolumn:name="NewEnough",type=string,JSONPath=`.status.conditions[?(@.type=="NewEnough")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type MachineSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineSourceSpec `json:"spec"`
	// +optional
	Status MachineSourceStatus `json:"status,omitempty"`
}

// MachineSourceList is a list of MachineSources.
//
// +kubebuilder:object:root=true
type MachineSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineSource `json:"items"`
}
