// Package interlocks pauses controllers that would act on a node while refit updates it,
// and resumes them: the cluster autoscaler, Karpenter, the machine health checks of
// Cluster API.
//
// Promise: the write that changes an object also records the prior value on it
// (AnnotationInterlock). refit never changes or removes what a person set: it does not
// record a value that exists, and leaves one that changed since. After a crash between any
// two writes an object is as it was, or records how it was. A controller that starts
// restores every object that no running update owns.
//
// What is held, and for how long:
//
//	Node      cluster-autoscaler.kubernetes.io/scale-down-disabled, while the
//	          node carries an update's mark; written and removed with the mark
//	          (HoldNode, ReleaseNode)
//	Node      karpenter.sh/do-not-disrupt, the same, on nodes of a NodePool
//	NodePool  a disruption budget of 0 nodes, from the first of its nodes that is
//	          marked until the update has ended: between two nodes Karpenter
//	          would spend the pool's availability too
//	Machine   cluster.x-k8s.io/skip-remediation with refit.dev/interlock-until, while
//	          its node is marked; renewed while refit lives
//
// A halted or paused update still owns what it holds, so that a person can inspect the
// failed node. A health check that deletes its machine, or an autoscaler that removes the
// drained node, would destroy the evidence and replace a machine as a side effect.
// Deleting the ClusterUpdate restores everything at once, except on a node that is still
// running its steps. interlock-until is for people: if refit is removed from the cluster,
// it shows when the annotation may be deleted.
//
// Kinds that the cluster does not have are skipped. If another cluster manages the
// machines there is no Machine to annotate; Cluster API's own extension does that there.
//
// Files: record.go the record (pure), decide.go who is held now (pure), apply.go
// the writes, reconcile.go the loop. Callers: internal/controller;
// controller/clusterupdates with the mark.
package interlocks
