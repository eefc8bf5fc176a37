package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StartMode is when a ClusterUpdate starts.
// +kubebuilder:validation:Enum=Manual;Immediate
type StartMode string

const (
	// StartManual plans, loads, pins and checks, and waits for a person.
	StartManual StartMode = "Manual"
	// StartImmediate starts as soon as the gate opens.
	StartImmediate StartMode = "Immediate"
)

// Phases of a ClusterUpdate, in order.
const (
	PhasePlanning  = "Planning"  // the plan is not known yet
	PhasePreparing = "Preparing" // nodes copy, load and pin
	PhaseBlocked   = "Blocked"   // a person must act before anything starts
	PhaseReady     = "Ready"     // the gate is open, waiting for a person to start
	PhaseUpdating  = "Updating"  // nodes move
	PhaseHalted    = "Halted"    // a node failed; nothing new starts
	PhaseDone      = "Done"      // every node was observed at the target
)

// WorkersMode is in which hops of a ClusterUpdate workers move.
// +kubebuilder:validation:Enum=EveryHop;LastHop
type WorkersMode string

const (
	// WorkersEveryHop moves workers in every hop.
	WorkersEveryHop WorkersMode = "EveryHop"
	// WorkersLastHop moves workers in the last hop only: over up to three minor versions.
	WorkersLastHop WorkersMode = "LastHop"
)

// ClusterUpdateSpec is one move of the cluster to a target fixed by a digest.
//
// +kubebuilder:validation:XValidation:rule="has(self.bundle) == has(oldSelf.bundle) && (!has(self.bundle) || self.bundle == oldSelf.bundle)",message="the target of an update cannot be changed: delete this ClusterUpdate and create another"
// +kubebuilder:validation:XValidation:rule="has(self.hops) == has(oldSelf.hops) && (!has(self.hops) || self.hops == oldSelf.hops)",message="the hops of an update cannot be changed: delete this ClusterUpdate and create another"
// +kubebuilder:validation:XValidation:rule="has(self.workers) == has(oldSelf.workers) && (!has(self.workers) || self.workers == oldSelf.workers)",message="spec.workers cannot be changed: delete this ClusterUpdate and create another"
// +kubebuilder:validation:XValidation:rule="!has(self.hops) || has(self.bundle) && !(self.bundle in self.hops)",message="hops need a bundle to end at, another one than theirs"
// +kubebuilder:validation:XValidation:rule="!has(self.hops) || !has(self.nodes)",message="an update through hops is for the whole cluster: leave out spec.nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.hops) || !has(self.allowDowngrade) || !self.allowDowngrade",message="an update through hops is no rollback: leave out spec.allowDowngrade"
// +kubebuilder:validation:XValidation:rule="!has(self.pauseAfter) || has(self.hops) && self.pauseAfter in self.hops",message="spec.pauseAfter must be one of spec.hops"
// +kubebuilder:validation:XValidation:rule="has(self.nodes) == has(oldSelf.nodes) && (!has(self.nodes) || self.nodes == oldSelf.nodes)",message="the nodes of an update cannot be changed: delete this ClusterUpdate and create another"
type ClusterUpdateSpec struct {
	// Bundle is the digest of the bundle to run. Without one the update applies the
	// nodes' NodeConfigs and changes nothing else.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="must be the digest of a bundle, sha256: and 64 lower-case hex digits, as `kubectl get bundles -o wide` shows it"
	Bundle string `json:"bundle,omitempty"`
	// Hops are digests of bundles that the cluster goes to first, in this order: those of the
	// minor versions on the way to bundle. All hops are planned, approved and prepared
	// together. Each one starts when the one before it is done and every check passes again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(d, self.exists_one(e, e == d))",message="every hop is another bundle"
	// +kubebuilder:validation:XValidation:rule="self.all(d, d.matches('^sha256:[0-9a-f]{64}$'))",message="must be digests of bundles, sha256: and 64 lower-case hex digits, as `kubectl get bundles -o wide` shows them"
	Hops []string `json:"hops,omitempty"`
	// Workers is in which hops workers move: EveryHop (the default), or LastHop. With LastHop
	// a worker is drained once. Kubernetes supports kubelets up to three minor versions older
	// than the API servers. Workers of k3s, RKE2, k0s move in every hop.
	// +optional
	Workers WorkersMode `json:"workers,omitempty"`
	// PauseAfter is the digest of one of the hops. When it is done, the next one waits until
	// this field is removed or names a later hop.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	PauseAfter string `json:"pauseAfter,omitempty"`
	// Nodes limits the update to these nodes; other nodes do not change, but the checks
	// still include them. Empty means all. Cluster API's machines are updated one by one
	// like this.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Nodes []string `json:"nodes,omitempty"`
	// Start is when the update starts: Manual waits for a person, Immediate starts as
	// soon as every check passes.
	// +optional
	// +kubebuilder:default=Manual
	Start StartMode `json:"start,omitempty"`
	// PlanDigest is the digest of the plan that was approved. If the plan is
	// another when nodes are to start, nothing starts. Empty with Immediate
	// approves the plan that is current at the start.
	// +optional
	PlanDigest string `json:"planDigest,omitempty"`
	// Paused keeps further nodes from starting; nodes that have started continue.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// AllowDowngrade lets an older bundle run (a rollback). Without it an older
	// bundle is loaded but refused as an update.
	// +optional
	AllowDowngrade bool `json:"allowDowngrade,omitempty"`
	// Retry is raised by one to try failed nodes again after a halt.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retry int32 `json:"retry,omitempty"`
	// Drain changes how this update empties nodes.
	// +optional
	Drain *DrainOptions `json:"drain,omitempty"`
	// AcceptedRisks are checks of the gate that only warn when closed, each with a
	// reason and a deadline.
	// +optional
	// +listType=map
	// +listMapKey=check
	// +kubebuilder:validation:MaxItems=32
	AcceptedRisks []AcceptedRisk `json:"acceptedRisks,omitempty"`
	// RetryNodes raises the retry of single nodes, in addition to spec.retry.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	RetryNodes []NodeRetry `json:"retryNodes,omitempty"`
}

// NodeRetry lets one node be tried again.
type NodeRetry struct {
	// Name of the node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Retry is raised by one to try the node again.
	// +kubebuilder:validation:Minimum=1
	Retry int32 `json:"retry"`
}

// Estimate is when an update will be done, learned from how long this cluster's
// own nodes took, or nodes of refit's lab. It is no promise and no part of the plan.
type Estimate struct {
	// Earliest and Latest time at which the last node is expected to be done.
	Earliest metav1.Time `json:"earliest"`
	Latest   metav1.Time `json:"latest"`
	// Samples is the number of nodes that it was learned from; 0 is an estimate by the
	// times of refit's lab, while nodes of some role were never timed in this cluster.
	Samples int32 `json:"samples"`
}

// Unavailability is how long the API server did not answer the controller while nodes
// moved, measured once a second from where the controller runs.
type Unavailability struct {
	// Seconds in all.
	Seconds int64 `json:"seconds"`
	// LongestSeconds without an answer in between.
	LongestSeconds int64 `json:"longestSeconds"`
}

// Blocker is one reason why the update does not go on.
type Blocker struct {
	// Reason word, one of the catalogue.
	Reason string `json:"reason"`
	// Message is what is wrong, where and by how much.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// Fix is what unblocks it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Fix string `json:"fix,omitempty"`
	// Object the reason is about, as kind/name or kind/namespace/name.
	// +optional
	Object string `json:"object,omitempty"`
	// Waiting is true if the update goes on by itself when the reason ends. Without it a
	// person must act.
	// +optional
	Waiting bool `json:"waiting,omitempty"`
	// Since when.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// NotificationRecord is a message about the update that webhooks got.
type NotificationRecord struct {
	// Event is one of Started, NeedsPerson, Failed, Done.
	Event string `json:"event"`
	// Reason word of a NeedsPerson.
	// +optional
	Reason string `json:"reason,omitempty"`
	// ID of the message, the same in every repeat.
	ID string `json:"id"`
	// Receivers that got it, by their names in the controller's configuration.
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	Receivers []string `json:"receivers"`
}

// ExternalCall is how far an external updater is with a node.
type ExternalCall struct {
	Node string `json:"node"`
	// Updater is its name, Attempt the node's attempt that it was asked in.
	Updater string `json:"updater"`
	Attempt int32  `json:"attempt"`
	// Since when it is asked.
	Since metav1.Time `json:"since"`
	// Failed: the updater reported a failure or missed its deadline. It is not called
	// again in this attempt.
	// +optional
	Failed bool `json:"failed,omitempty"`
	// Message is its last message, or why there is no answer.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// PhaseTime is when a phase began.
type PhaseTime struct {
	Phase     string      `json:"phase"`
	StartedAt metav1.Time `json:"startedAt"`
}

// States of the cluster resources of a bundle.
const (
	ResourcesCompared = "Compared" // by dry runs; they are applied after the nodes
	ResourcesStarted  = "Started"  // those that come before the nodes are applied
	ResourcesWaiting  = "Waiting"  // applied, some do not work yet
	ResourcesApplied  = "Applied"
	ResourcesConflict = "Conflict" // another manager owns a field
	ResourcesFailed   = "Failed"   // refused, by refit or by the API server
)

// HopStatus is the progress of one hop of an update.
type HopStatus struct {
	// Bundle is the digest of its bundle, Version the version of that bundle.
	Bundle string `json:"bundle"`
	// +optional
	Version string `json:"version,omitempty"`
	// Nodes is the number of nodes that change in this hop.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// StartedAt is when its first node could start, FinishedAt when its last node was observed
	// at its target.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// ResourcesStatus is the state of the bundle's cluster resources.
type ResourcesStatus struct {
	// State is one of Compared, Started, Waiting, Applied, Conflict, Failed.
	State string `json:"state"`
	// Create, Change, Remove and Unchanged count objects.
	Create    int32 `json:"create"`
	Change    int32 `json:"change"`
	Remove    int32 `json:"remove"`
	Unchanged int32 `json:"unchanged"`
	// Before counts the objects that are applied before the nodes move: those with the
	// annotation refit.dev/apply: before-nodes. BeforeApplied is true when they are
	// ready.
	// +optional
	Before int32 `json:"before,omitempty"`
	// +optional
	BeforeApplied bool `json:"beforeApplied,omitempty"`
	// Message is one sentence.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// Conflicts name object, field and owner; the first 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Conflicts []string `json:"conflicts,omitempty"`
}

// ClusterUpdateStatus is the progress of the update, what it waits for, and why.
type ClusterUpdateStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is one of Planning, Preparing, Blocked, Ready, Updating, Halted, Done.
	// +optional
	Phase string `json:"phase,omitempty"`
	// Version of the bundle, for people.
	// +optional
	Version string `json:"version,omitempty"`
	// Hops is the progress of the hops, the last of them to spec.bundle. Absent without
	// spec.hops.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Hops []HopStatus `json:"hops,omitempty"`
	// PlanDigest is the digest of the current plan, with all its hops.
	// +optional
	PlanDigest string `json:"planDigest,omitempty"`
	// Plan is the name of the Content with the plan.
	// +optional
	Plan string `json:"plan,omitempty"`
	// Progress as "done/wanted" nodes.
	// +optional
	Progress string `json:"progress,omitempty"`
	// NodesDone, NodesTotal and NodesFailed count the nodes of the plan, or of the current hop.
	// +optional
	NodesDone int32 `json:"nodesDone,omitempty"`
	// +optional
	NodesTotal int32 `json:"nodesTotal,omitempty"`
	// +optional
	NodesFailed int32 `json:"nodesFailed,omitempty"`
	// Current are the nodes that are being updated.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Current []string `json:"current,omitempty"`
	// WaitingFor is the first blocker in one sentence, empty if nothing waits.
	// +optional
	WaitingFor string `json:"waitingFor,omitempty"`
	// Blockers are the first 20 reasons, most important first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Blockers []Blocker `json:"blockers,omitempty"`
	// BlockerCount is the number of all reasons.
	// +optional
	BlockerCount int32 `json:"blockerCount,omitempty"`
	// Warnings do not keep the update from starting but would delay it later, for
	// example a disruption budget that allows no eviction. The first 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Warnings []Blocker `json:"warnings,omitempty"`
	// Checks are all checks of the gate in its order, with their answers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Checks []GateCheck `json:"checks,omitempty"`
	// AcceptedRisks is the effect of each accepted risk.
	// +optional
	// +listType=map
	// +listMapKey=check
	// +kubebuilder:validation:MaxItems=32
	AcceptedRisks []RiskRecord `json:"acceptedRisks,omitempty"`
	// Drains are the nodes that are being emptied; the first 10.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Drains []NodeDrain `json:"drains,omitempty"`
	// External is the progress of external updaters on the nodes that wait for them.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=100
	External []ExternalCall `json:"external,omitempty"`
	// Phases is when each phase started, oldest first; the last 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Phases []PhaseTime `json:"phases,omitempty"`
	// Resources of the bundle: compared before the nodes move, applied after. Absent if
	// the bundle has none.
	// +optional
	Resources *ResourcesStatus `json:"resources,omitempty"`
	// Notifications are the messages about the update that webhooks got; the last 50.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Notifications []NotificationRecord `json:"notifications,omitempty"`
	// Estimate is when the update, or its current hop, will be done; absent while no node of a role
	// that must still move was ever timed, and when nothing moves.
	// +optional
	Estimate *Estimate `json:"estimate,omitempty"`
	// APIUnavailable is how long the API server was unavailable during the update.
	// +optional
	APIUnavailable *Unavailability `json:"apiUnavailable,omitempty"`
	// StartedAt is when the first node started.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// FinishedAt is when the last node was observed at the target.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Conditions: Planned, GateOpen, Ready, Reconciling, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterUpdate is the only thing that moves nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rcu
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Done-By",type=string,JSONPath=`.status.estimate.latest`
// +kubebuilder:printcolumn:name="Waiting-For",type=string,JSONPath=`.status.waitingFor`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Plan",type=string,priority=1,JSONPath=`.status.planDigest`
// +kubebuilder:printcolumn:name="Paused",type=boolean,priority=1,JSONPath=`.spec.paused`
type ClusterUpdate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterUpdateSpec `json:"spec"`
	// +optional
	Status ClusterUpdateStatus `json:"status,omitempty"`
}

// ClusterUpdateList is a list of ClusterUpdates.
//
// +kubebuilder:object:root=true
type ClusterUpdateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterUpdate `json:"items"`
}
