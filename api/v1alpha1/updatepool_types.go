package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// UpdatePoolSpec is which nodes are updated together and how fast.
//
// +kubebuilder:validation:XValidation:rule="!has(self.osBuild) || has(self.osImage)",message="osBuild is a build of the pool's OSImage: name that in osImage, or leave osBuild out"
type UpdatePoolSpec struct {
	// NodeSelector selects the pool's nodes. A node in two pools is not updated, and the
	// status of both pools names it.
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// MaxUnavailable is how many nodes of the pool may be unavailable at once,
	// a number or a percentage (rounded down, at least 1). Control-plane nodes
	// always move one at a time.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="must be a number of at least 1 or a percentage from 1% to 100%: with 0 no node could ever be updated; use paused to stop"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Order of the pool: pools with smaller numbers are updated first.
	// +optional
	Order int32 `json:"order,omitempty"`
	// Paused keeps the pool's nodes from starting; a node that has started continues.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// DrainTimeoutSeconds after which a drain without progress halts the update. 0 waits
	// forever.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	DrainTimeoutSeconds int32 `json:"drainTimeoutSeconds,omitempty"`
	// Canary nodes go first; the pool's other nodes start only when all of them
	// were observed at the target, are Ready, and have soaked. A canary that fails
	// halts the update. Only workers are canaries: control-plane nodes move one at
	// a time anyway. Without it, an OS image that no node of the update has booted goes
	// to one worker first; nodes 100% turns that off.
	// +optional
	Canary *Canary `json:"canary,omitempty"`
	// SoakSeconds is how long a finished node is observed before its place in
	// maxUnavailable is free for another. It counts for each node, not for a wave. At any
	// time at most maxUnavailable nodes are updated and not yet proven, and a large pool
	// does not wait for the slowest node of a wave. The update is done when its last node
	// has soaked.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds int32 `json:"soakSeconds,omitempty"`
	// MaxFailures is the number of failed nodes of the pool that halts the update:
	// with 1 the first does. A control-plane node or a canary that fails halts
	// always. Nodes that failed to boot an OS image count over all pools that boot it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="must be at least 1: with 1 the first failed node halts the update; to stop it yourself use paused"
	MaxFailures int32 `json:"maxFailures,omitempty"`
	// Windows in which nodes of the pool may start; none means always. A started node
	// always finishes, so a node starts only if the usual duration in this cluster fits
	// into the rest of the window.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`
	// Zones updates the pool's workers one zone (topology.kubernetes.io/zone) after
	// another, in the order of their names; nodes without the label come first.
	// +optional
	Zones bool `json:"zones,omitempty"`
	// StepDeadlineSeconds after which a step of a node's update has failed, counted
	// while its agent runs. 0 waits for ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 60",message="must be 0 (no deadline) or at least 60 seconds: kubeadm alone takes minutes on a control-plane node"
	// +kubebuilder:validation:Maximum=604800
	StepDeadlineSeconds int32 `json:"stepDeadlineSeconds,omitempty"`
	// UndoDeadlineSeconds is how long a node may be unwell after a step that can cut it off. Such
	// steps change its network, firewall, resolver, sshd, kernel arguments, OS image, or the
	// units of kubelet and container runtime. After that time its agent undoes the steps by
	// itself, without the API server, and the node has failed with UndoneByDeadline. Only
	// the time counts in which the agent runs and the node is not well. 0 turns this off.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 60 && self <= 7200",message="must be 0 (a node never undoes steps by itself) or from 60 to 7200 seconds: a kubelet needs a minute to be Ready again"
	UndoDeadlineSeconds *int32 `json:"undoDeadlineSeconds,omitempty"`
	// Attempts is how often a node is tried before it has failed. Each time a
	// person raises spec.retry of the ClusterUpdate it is tried that often again.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 10",message="must be from 1 to 10: a node that failed ten times needs a person"
	Attempts int32 `json:"attempts,omitempty"`
	// OnFailure is the action on a failed node. Halt leaves it as it is, cordoned. Undo
	// undoes the started steps, if all of them can be undone, and returns the node at its
	// old version. Either counts as a failure.
	// +optional
	// +kubebuilder:default=Halt
	OnFailure FailurePolicy `json:"onFailure,omitempty"`
	// ControlPlane is how the static pods of the pool's control-plane nodes are replaced.
	// Together replaces them at once, and on the only control-plane node the kubelet with
	// them: the API server is unavailable for seconds. kubeadm still writes the manifests
	// and does the rest. Kubeadm has `kubeadm upgrade` replace one component after
	// another, which takes minutes. refit uses Kubeadm by itself for Kubernetes versions
	// whose kubeadm it does not know.
	// +optional
	// +kubebuilder:default=Together
	ControlPlane ControlPlaneMethod `json:"controlPlane,omitempty"`
	// KubeadmPatches is a directory on the pool's nodes with the patches that kubeadm
	// applies to manifests and to the kubelet's configuration, as `kubeadm upgrade
	// --patches` takes it. kubeadm does not remember the directory: without it an update
	// writes manifests without the patches. Directory and files must belong to root.
	// +optional
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]+$`
	// +kubebuilder:validation:MaxLength=256
	KubeadmPatches string `json:"kubeadmPatches,omitempty"`
	// LocalCopy is whether the pool's nodes keep a copy of the blobs of pinned images, for
	// PinnedImageSets without a value of their own. With Keep, a node recovers by itself
	// after a power cut; Discard saves the room. Empty is Keep.
	// +optional
	LocalCopy LocalCopy `json:"localCopy,omitempty"`
	// PinImages is which images of a bundle the pool's nodes pin. Needed leaves out the group
	// control-plane on workers. With All, workers pin it too, and can send it to a
	// control-plane node that lost its disk. Empty is Needed.
	// +optional
	PinImages PinScope `json:"pinImages,omitempty"`
	// KeepReleases is how many older releases nodes keep for a rollback. When an update of
	// the whole cluster is complete, its nodes have soaked, and nodes remove the images
	// and node binaries of releases before those. The largest number of all pools counts,
	// because a bundle is on all nodes. With 0, a rollback needs the medium again.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 5",message="must be from 0 (a rollback needs the medium) to 5: set keep of single Bundles to hold more"
	KeepReleases *int32 `json:"keepReleases,omitempty"`
	// PeerPort is the TCP port on which agents of the pool's nodes answer each other,
	// where their own configuration names none. Left out, it is 18740.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1024 && self <= 65535",message="must be from 1024 to 65535; docs/reference/ports.md lists what other node components use"
	PeerPort int32 `json:"peerPort,omitempty"`
	// SoftReboot lets nodes boot an OS image by a restart of user space alone, where the
	// host supports it (bootc, the same kernel and kernel arguments). All pods stop as
	// in a restart of the machine, so nodes are drained.
	// +optional
	SoftReboot bool `json:"softReboot,omitempty"`
	// OSReadySeconds is how long a node may take, after it booted another OS image, until
	// its kubelet is healthy and the node is Ready. After that it rolls back to its previous
	// image, and has failed. The default is 600. While the API server does not answer, only
	// the kubelet's own health counts.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 60 && self <= 7200",message="must be from 60 to 7200 seconds: a machine needs a minute to come up, and one that needs hours does not"
	OSReadySeconds int32 `json:"osReadySeconds,omitempty"`
	// BootFallback is whether nodes boot an OS image although they may not return by themselves
	// if its kernel, systemd or agent does not start. Empty is Warn.
	// +optional
	BootFallback BootFallbackRule `json:"bootFallback,omitempty"`
	// Drift is the action on changes of other writers on the pool's nodes; the default is
	// Report.
	// +optional
	Drift DriftAction `json:"drift,omitempty"`
	// DriftRules are other actions for single files and units; the closest rule counts.
	// Where none matches, drift counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	DriftRules []DriftRule `json:"driftRules,omitempty"`
	// MaxStaging is how many nodes of the pool fetch and stage their next OS image at once.
	// Every node does so before it is cordoned, independent of its turn.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="must be at least 1: a node that has not staged its image is not taken"
	MaxStaging int32 `json:"maxStaging,omitempty"`
	// OSImage that the pool's nodes boot. While the pool is paused its images are
	// built, and no node moves.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	OSImage string `json:"osImage,omitempty"`
	// OSBuild pins the pool's nodes to the image and configuration of an earlier build: a
	// rollback that builds nothing. `refit rollback --pool` sets it; without it the pool
	// follows its OSImage and NodeConfigs.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	OSBuild string `json:"osBuild,omitempty"`
	// StartupTaint keeps pods away from nodes that join the pool until all their images are
	// pinned. A new node, or one that lost its store (a new disk, a reinstalled machine),
	// gets the taint refit.dev/images-not-ready:NoSchedule. It loses the taint when its
	// agent has proven its images. Nodes older than the pool do not change. A node that
	// registers with the taint itself waits in any pool, and in none.
	// +optional
	StartupTaint bool `json:"startupTaint,omitempty"`
	// Disruption rules set what a change of files, units and ssh keys does to the node,
	// unless the NodeConfig sets it. In a pool with rules, or with an OSImage, a change
	// without a rule reboots the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Disruption []DisruptionRule `json:"disruption,omitempty"`
	// HealthChecks of your own: all of them must pass before an update with nodes of the
	// pool starts, before each node of the pool starts, and before the update is done.
	// Started nodes finish in any case.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`
	// LoadBalancerSeconds is how long a node is out of the external load balancers before it
	// is cordoned and drained. refit sets the label
	// node.kubernetes.io/exclude-from-external-load-balancers, waits that long, and removes
	// its label when the node is back. It leaves a label that another writer set. 0 sets none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	LoadBalancerSeconds int32 `json:"loadBalancerSeconds,omitempty"`
}

// HealthCheck is a condition that objects of the cluster must meet.
type HealthCheck struct {
	// Name of the check, as messages show it.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`
	// Objects that are checked. If there is none, the check fails.
	Objects CheckedObjects `json:"objects"`
	// Expression in CEL that must be true for each object, which is the variable object.
	// Example: object.status.?readyReplicas.orValue(0) >= 2. Its cost is bounded.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expression string `json:"expression"`
	// Message for people if the expression is not true.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// CheckedObjects names one object, or selects objects of one kind: at most 500.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.name) && has(self.selector))",message="set name or selector, not both; without either all objects of the kind are checked"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Secret'",message="a health check reads no Secret: the author of a pool could find out its content"
// +kubebuilder:validation:XValidation:rule="self.kind != 'ConfigMap' || has(self.__namespace__) && !self.__namespace__.startsWith('refit-') && self.__namespace__.size() > 0",message="a health check reads no ConfigMap of refit's namespaces, which have files of nodes: name another namespace"
type CheckedObjects struct {
	// APIVersion of the objects, for example apps/v1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind of the objects, for example Deployment. The controller must be allowed to read it:
	// a ClusterRole with the label refit.dev/aggregate-to-health-checks grants that.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Namespace of the objects; empty for all namespaces, and for kinds without one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name of one object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Selector of objects by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// DisruptionRule is what changes of some things do to the node.
//
// +kubebuilder:validation:XValidation:rule="has(self.files) || has(self.units) || has(self.sshKeys)",message="name files, units or sshKeys that the rule applies to"
// +kubebuilder:validation:XValidation:rule="self.actions.size() == 1 || !self.actions.exists(a, a.type == 'None' || a.type == 'Reboot')",message="None and Reboot stand alone"
type DisruptionRule struct {
	// Files are paths, directories (everything below), or patterns: * within a name,
	// ** over any number of directories. The closest rule counts.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=1024
	Files []string `json:"files,omitempty"`
	// Units are names or patterns.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=200
	Units []string `json:"units,omitempty"`
	// SSHKeys: the keys of users.
	// +optional
	SSHKeys bool `json:"sshKeys,omitempty"`
	// Actions that are taken, each once.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Actions []DisruptionAction `json:"actions"`
}

// DisruptionAction is one thing that is done after a change.
//
// +kubebuilder:validation:XValidation:rule="(self.type in ['Reload', 'Restart']) == has(self.unit)",message="Reload and Restart need a unit, the others must not have one"
type DisruptionAction struct {
	// Type: None, Reload, Restart, DaemonReload, Drain, Reboot.
	// +kubebuilder:validation:Enum=None;Reload;Restart;DaemonReload;Drain;Reboot
	Type string `json:"type"`
	// Unit that is reloaded or restarted.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	Unit string `json:"unit,omitempty"`
}

// DriftRule is the action on changes of other writers to some files and units.
//
// +kubebuilder:validation:XValidation:rule="has(self.files) || has(self.units)",message="name files or units that the rule applies to"
type DriftRule struct {
	// Files are paths, directories (everything below), or patterns: * within a name,
	// ** over any number of directories.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^/`
	Files []string `json:"files,omitempty"`
	// Units are names or patterns.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=200
	Units []string `json:"units,omitempty"`
	// Action on changes of other writers.
	Action DriftAction `json:"action"`
}

// BootFallbackRule is whether hosts without a fallback at boot take OS images.
// +kubebuilder:validation:Enum=Warn;Require
type BootFallbackRule string

const (
	// BootFallbackWarn: they do, and the gate warns with what they miss.
	BootFallbackWarn BootFallbackRule = "Warn"
	// BootFallbackRequire: the gate stays closed for the image until every host of the plan
	// that boots it reports that it misses nothing, or the risk is accepted.
	BootFallbackRequire BootFallbackRule = "Require"
)

// DriftAction is the action on changes of other writers on a node.
// +kubebuilder:validation:Enum=Report;Repair;Ignore
type DriftAction string

const (
	// DriftReport: it is reported, and no update of the node starts before it is repaired
	// or accepted.
	DriftReport DriftAction = "Report"
	// DriftRepair: files and units whose change needs no drain are restored at once, all
	// others by the next update, which does not wait for it.
	DriftRepair DriftAction = "Repair"
	// DriftIgnore: it is not reported, and the next update overwrites it.
	DriftIgnore DriftAction = "Ignore"
)

// ControlPlaneMethod is how the static pods of a control-plane node are replaced.
// +kubebuilder:validation:Enum=Together;Kubeadm
type ControlPlaneMethod string

const (
	// ControlPlaneTogether replaces them at once.
	ControlPlaneTogether ControlPlaneMethod = "Together"
	// ControlPlaneKubeadm has kubeadm replace one after another.
	ControlPlaneKubeadm ControlPlaneMethod = "Kubeadm"
)

// FailurePolicy is what happens to a node that has failed.
// +kubebuilder:validation:Enum=Halt;Undo
type FailurePolicy string

const (
	// FailureHalt leaves the node as it is.
	FailureHalt FailurePolicy = "Halt"
	// FailureUndo undoes the started steps.
	FailureUndo FailurePolicy = "Undo"
)

// Canary is which nodes of a pool start first.
type Canary struct {
	// Nodes is how many, a number or a percentage of the pool's workers in the
	// plan (rounded down, at least 1).
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="must be a number of at least 1 or a percentage from 1% to 100%: leave canary out to have none"
	Nodes intstr.IntOrString `json:"nodes"`
	// SoakSeconds that the canaries are watched after they are done.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds int32 `json:"soakSeconds,omitempty"`
}

// Weekday is the first three letters of an English day of the week.
// +kubebuilder:validation:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
type Weekday string

// Window is a time in which nodes may start.
type Window struct {
	// Days on which it opens; none means every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`
	// Start is the time of day at which it opens, HH:MM.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",message="must be a time of day as HH:MM from 00:00 to 23:59"
	Start string `json:"start"`
	// DurationMinutes it stays open, over midnight if need be.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 10080",message="must be from 1 minute to 10080 (a week): leave windows out to start at any time"
	DurationMinutes int32 `json:"durationMinutes"`
	// TimeZone of start, a name of the tz database such as Europe/Berlin.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$') && self != 'Local'",message="must be a name of the tz database, such as UTC or Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// UpdatePoolStatus counts the pool's nodes.
type UpdatePoolStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// Updated nodes have reached the target of the active ClusterUpdate.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// Updating nodes have started and are not done.
	// +optional
	Updating int32 `json:"updating,omitempty"`
	// Unavailable nodes are cordoned or not Ready.
	// +optional
	Unavailable int32 `json:"unavailable,omitempty"`
	// Joining nodes are not schedulable yet, because they have not pinned all their
	// images.
	// +optional
	Joining int32 `json:"joining,omitempty"`
	// Window is until when nodes may start, or when they may next; empty without
	// windows.
	// +optional
	Window string `json:"window,omitempty"`
	// Conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UpdatePool is a set of nodes that are updated together.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rup
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updated`
// +kubebuilder:printcolumn:name="Updating",type=integer,JSONPath=`.status.updating`
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.unavailable`
// +kubebuilder:printcolumn:name="Budget",type=string,JSONPath=`.spec.maxUnavailable`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Window",type=string,JSONPath=`.status.window`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type UpdatePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec UpdatePoolSpec `json:"spec"`
	// +optional
	Status UpdatePoolStatus `json:"status,omitempty"`
}

// UpdatePoolList is a list of UpdatePools.
//
// +kubebuilder:object:root=true
type UpdatePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UpdatePool `json:"items"`
}
