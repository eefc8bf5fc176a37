package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BootImageMode is what refit does with a machine manager whose image is not the
// wanted one.
// +kubebuilder:validation:Enum=Observe;NewMachinesOnly;Piggyback;Roll;Propose
type BootImageMode string

const (
	// BootImageObserve writes nothing.
	BootImageObserve BootImageMode = "Observe"
	// BootImageNewMachinesOnly writes where a change is met by new machines only.
	BootImageNewMachinesOnly BootImageMode = "NewMachinesOnly"
	// BootImagePiggyback writes the image together with the next version.
	BootImagePiggyback BootImageMode = "Piggyback"
	// BootImageRoll writes, and lets the machines be replaced.
	BootImageRoll BootImageMode = "Roll"
	// BootImagePropose writes the wanted change to the MachineSource only.
	BootImagePropose BootImageMode = "Propose"
)

// Modes of a canary.
const (
	// CanaryNone has no machine try an image first.
	CanaryNone = "None"
	// CanaryReplica makes one additional machine.
	CanaryReplica = "Replica"
)

// BootImageCanary has one machine start from a new image before refit writes the image for
// all machines of a manager.
type BootImageCanary struct {
	// Mode Replica makes one additional machine, from a temporary copy of the manager. It is
	// removed when it has passed or failed. The managers of a policy do so one after the other.
	// +kubebuilder:validation:Enum=None;Replica
	// +kubebuilder:default=None
	// +optional
	Mode string `json:"mode,omitempty"`
	// HealthyMinutes is how long its node must be Ready without a break.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1440
	// +optional
	HealthyMinutes int32 `json:"healthyMinutes,omitempty"`
	// JoinMinutes is the time within which the machine must join and become Ready.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1440
	// +optional
	JoinMinutes int32 `json:"joinMinutes,omitempty"`
	// MaxFailures is how many machines may fail before refit stops trying the image. Then a
	// person decides (refit bootimage retry, refit bootimage accept).
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	// +optional
	MaxFailures int32 `json:"maxFailures,omitempty"`
}

// MachineSelection selects machine managers of a kind, and how refit treats them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.canary) || self.canary.mode == 'None' || self.mode in ['NewMachinesOnly', 'Piggyback', 'Roll']",message="canary is for modes that write: NewMachinesOnly, Piggyback and Roll"
// +kubebuilder:validation:XValidation:rule="(self.select == 'Partial') == has(self.selector)",message="selector is for select: Partial, which needs one"
// +kubebuilder:validation:XValidation:rule="self.kind != 'ControlPlaneMachineSet' || self.select != 'Partial'",message="there is one ControlPlaneMachineSet: select All or None"
// +kubebuilder:validation:XValidation:rule="!has(self.windows) || self.mode == 'Roll'",message="windows are for mode Roll: the other modes replace no machine"
type MachineSelection struct {
	// Group and Kind of the machine managers, one of the table's or of kinds.
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Select All of them, those with certain labels (Partial), or None.
	// +kubebuilder:validation:Enum=All;Partial;None
	// +kubebuilder:default=All
	// +optional
	Select string `json:"select,omitempty"`
	// Selector of labels, for Partial.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Namespaces they are in; empty is every one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Namespaces []string `json:"namespaces,omitempty"`
	// Mode of writing.
	// +kubebuilder:default=Observe
	// +optional
	Mode BootImageMode `json:"mode,omitempty"`
	// Canary has one machine start from a new image before refit writes it: for
	// MachineDeployments and MachineSets.
	// +optional
	Canary *BootImageCanary `json:"canary,omitempty"`
	// Adopt lets an image be replaced that no stream knows. Without it such a
	// custom image is left alone.
	// +optional
	Adopt bool `json:"adopt,omitempty"`
	// Platform, Region, Architecture, Variant and OSStream apply where the object does
	// not set them. Variant also selects one of several images.
	// +optional
	Platform string `json:"platform,omitempty"`
	// +optional
	Region string `json:"region,omitempty"`
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// +optional
	Variant string `json:"variant,omitempty"`
	// +optional
	OSStream string `json:"osStream,omitempty"`
	// Attributes of the image that the stream does not have, for example the name
	// of a vSphere template; {version} stands for the image's version.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Attributes map[string]string `json:"attributes,omitempty"`
	// Facts of these machines for rules about incompatibilities, for example
	// runtime: runc.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Facts map[string]string `json:"facts,omitempty"`
	// Windows in which mode Roll may write.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`
}

// SkewRule is one limit for boot images.
//
// +kubebuilder:validation:XValidation:rule="has(self.minimumRelease) || has(self.minimumOS) || has(self.minorsBehind) || has(self.majorSteps) || has(self.minAgeDays) || has(self.maxAgeDays) || has(self.incompatible) || has(self.minimumFacts)",message="a rule limits something: minimumRelease, minimumOS, minorsBehind, majorSteps, minAgeDays, maxAgeDays, incompatible or minimumFacts"
type SkewRule struct {
	// Name by which a waiver means it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Targets are the minor versions (1.36, 4.19) that the rule applies to; empty is
	// every one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Targets []string `json:"targets,omitempty"`
	// MinimumRelease of the image. It decides alone if the image's release is known.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	MinimumRelease string `json:"minimumRelease,omitempty"`
	// MinimumOS is the least OS version in the image, for example 9.4.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	MinimumOS string `json:"minimumOS,omitempty"`
	// MinorsBehind is how many minor versions the image's release may be behind.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinorsBehind *int32 `json:"minorsBehind,omitempty"`
	// MajorSteps is how many major versions the image's OS may differ; without a rule
	// about it, one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MajorSteps *int32 `json:"majorSteps,omitempty"`
	// MinAgeDays is the minimum age of an image before it may be used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinAgeDays *int32 `json:"minAgeDays,omitempty"`
	// MaxAgeDays of an image.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxAgeDays *int32 `json:"maxAgeDays,omitempty"`
	// Incompatible facts of a source.
	// +optional
	Incompatible *IncompatibleFacts `json:"incompatible,omitempty"`
	// MinimumFacts are the minimum values of facts that machines report: cpu
	// (x86-64-v3), shim and grub (versions). The lowest value of a source's nodes
	// counts, or its declared facts while it has no nodes.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	MinimumFacts map[string]string `json:"minimumFacts,omitempty"`
	// Why the rule is there: it is part of what people read.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Why string `json:"why,omitempty"`
}

// IncompatibleFacts break at targets with one of the OS majors.
type IncompatibleFacts struct {
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	Facts map[string]string `json:"facts"`
	// TargetMajors of the operating system; empty is any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	TargetMajors []int32 `json:"targetMajors,omitempty"`
}

// SkewWaiver is an exception that ends.
type SkewWaiver struct {
	// Source is the name of a MachineSource; a * at its end stands for anything.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Source string `json:"source"`
	// Rule that is waived; empty is every one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Rule string `json:"rule,omitempty"`
	// Reason, for those who come after.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="set a reason: a waiver without one does not count"
	Reason string `json:"reason"`
	// Until it counts.
	Until metav1.Time `json:"until"`
}

// BootImageSkew limits how old a boot image may be.
type BootImageSkew struct {
	// Mode for all sources of the policy. Manual: administrators update images and
	// declare them in the MachineSources. None: images are not updated, and nothing is
	// refused. Empty: Automatic where refit updates them, else Manual.
	// +optional
	// +kubebuilder:validation:Enum="";Manual;None
	Mode string `json:"mode,omitempty"`
	// Rules in addition to those of the stream.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Rules []SkewRule `json:"rules,omitempty"`
	// TargetOS is the OS version that nodes run after the next update, if it moves.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TargetOS string `json:"targetOS,omitempty"`
	// Waivers are exceptions that end.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Waivers []SkewWaiver `json:"waivers,omitempty"`
}

// BootImageContest limits how often refit writes an image that another writer undoes.
type BootImageContest struct {
	// Writes of one image to one object within WindowMinutes.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Writes int32 `json:"writes,omitempty"`
	// +optional
	// +kubebuilder:default=360
	// +kubebuilder:validation:Minimum=1
	WindowMinutes int32 `json:"windowMinutes,omitempty"`
	// QuietMinutes without a write of either side before it is tried again.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	QuietMinutes int32 `json:"quietMinutes,omitempty"`
}

// AuthorityConfigMap is where certificates stand.
type AuthorityConfigMap struct {
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key of the certificates, in PEM.
	// +optional
	// +kubebuilder:default=ca-bundle.crt
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// BootImageAuthority is the certificate authority of the server from which
// first-boot configurations fetch the rest. When it changes, refit writes it to
// every first-boot configuration of the policy's machines, in the modes that write.
type BootImageAuthority struct {
	// ConfigMap with the certificates; OpenShift's is machine-config-server-ca in
	// openshift-machine-config-operator.
	ConfigMap AuthorityConfigMap `json:"configMap"`
	// Servers that have it, as host:port. A configuration that fetches from another
	// one is left alone.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Servers []string `json:"servers"`
}

// RefusedImage is an image that refit never writes.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) || has(self.os)",message="name the image, or the OS version in it"
type RefusedImage struct {
	// Image as its platform names it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
	// OS version in it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	OS string `json:"os,omitempty"`
	// Reason, for those who come after.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="set a reason"
	Reason string `json:"reason"`
}

// BootImagePolicySpec selects machine managers and the boot images that they get.
type BootImagePolicySpec struct {
	// Streams with the wanted images, names of BootImageStreams. The one of the
	// newest release that a control-plane node runs counts; the others are for
	// recognising what was used before.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Streams []string `json:"streams"`
	// Managers by kind. The first entry that selects an object counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Managers []MachineSelection `json:"managers,omitempty"`
	// Refused images are never written, also if a stream wants them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Refused []RefusedImage `json:"refused,omitempty"`
	// Skew rules.
	// +optional
	Skew BootImageSkew `json:"skew,omitempty"`
	// Contest with others who write the same field.
	// +optional
	// +kubebuilder:default={}
	Contest BootImageContest `json:"contest,omitempty"`
	// Kinds are additional rows of the table of machine kinds: managers and images as in
	// docs/reference/machine-kinds.md. A row overrides refit's own row of the same kind.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Kinds *runtime.RawExtension `json:"kinds,omitempty"`
	// Authority that first-boot configurations are to trust; without it theirs is
	// left alone.
	// +optional
	Authority *BootImageAuthority `json:"authority,omitempty"`
}

// BlockedTarget is a version that a source's image is too old for.
type BlockedTarget struct {
	// Major and Minor of the Kubernetes version.
	Major int32 `json:"major"`
	Minor int32 `json:"minor"`
	// Source is the MachineSource; Kind, Namespace and Name are its object's.
	Source string `json:"source"`
	// +optional
	Kind string `json:"kind,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// PoolOnly: only this object waits, no control plane and no topology.
	// +optional
	PoolOnly bool `json:"poolOnly,omitempty"`
	// Message is the reason and the fix.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// BootImagePolicyStatus is what came of it.
type BootImagePolicyStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Stream that counts now, and its release.
	// +optional
	Stream string `json:"stream,omitempty"`
	// +optional
	Release string `json:"release,omitempty"`
	// Effective choice by kind, as words.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Effective []string `json:"effective,omitempty"`
	// Sources of machines that the policy selects, and what they are: every one is
	// counted once.
	// +optional
	Sources int32 `json:"sources,omitempty"`
	// +optional
	Current int32 `json:"current,omitempty"`
	// +optional
	Outdated int32 `json:"outdated,omitempty"`
	// Skipped are owned by others, custom, newer or rolled back; Excluded are excluded by the
	// policy; Unknown cannot be classified; Contested are undone by others.
	// +optional
	Skipped int32 `json:"skipped,omitempty"`
	// +optional
	Excluded int32 `json:"excluded,omitempty"`
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
	// +optional
	Contested int32 `json:"contested,omitempty"`
	// TooOld are sources whose image is too old for the release that runs.
	// +optional
	TooOld int32 `json:"tooOld,omitempty"`
	// Blocked targets: moving there would leave sources whose machines cannot join.
	// An admission policy refuses the versions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Blocked []BlockedTarget `json:"blocked,omitempty"`
	// Failures are checks that could not list a machine kind, absent if the last one could.
	// While they do not persist, the sources of that kind stay as they were recorded.
	// +optional
	Failures *CheckFailures `json:"failures,omitempty"`
	// Conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BootImagePolicy keeps the boot images of machine managers current, and reports
// when they are too old. It decides what new machines start from: only
// administrators may write one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rbip
// +kubebuilder:printcolumn:name="Stream",type=string,JSONPath=`.status.stream`
// +kubebuilder:printcolumn:name="Sources",type=integer,JSONPath=`.status.sources`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.current`
// +kubebuilder:printcolumn:name="TooOld",type=integer,JSONPath=`.status.tooOld`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type BootImagePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BootImagePolicySpec `json:"spec"`
	// +optional
	Status BootImagePolicyStatus `json:"status,omitempty"`
}

// BootImagePolicyList is a list of BootImagePolicies.
//
// +kubebuilder:object:root=true
type BootImagePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BootImagePolicy `json:"items"`
}
