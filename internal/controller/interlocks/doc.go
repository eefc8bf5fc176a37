// Package interlocks holds back what would act on a node while refit updates
// it, and gives it back: the cluster autoscaler, Karpenter, the machine health
// checks of Cluster API.
//
// Promise: what is changed is recorded on the object itself, with the value
// that was there before, in the same write that changes it (AnnotationHeld).
// What a person has set is never touched and never removed: a value that is
// there already is not recorded, and one that was changed since is left as it
// is. So a crash between any two writes leaves an object that is either as it
// was or says how it was. A controller that starts restores whatever no running
// update owns.
//
// What is held, and for how long:
//
//	Node      cluster-autoscaler.kubernetes.io/scale-down-disabled, while the
//	          node carries an update's mark; written with the mark, taken back
//	          with it (HoldNode, ReleaseNode)
//	Node      karpenter.sh/do-not-disrupt, the same, on nodes of a NodePool
//	NodePool  a disruption budget of 0 nodes, from the first of its nodes that is
//	          marked until the update has ended: between two nodes Karpenter
//	          would spend the pool's availability too
//	Machine   cluster.x-k8s.io/skip-remediation with refit.dev/interlock-until, while
//	          its node is marked; renewed while refit lives
//
// A halted or paused update still owns what it holds. A person is meant to look
// at the failed node: a health check that deletes its machine, or an autoscaler
// that takes the emptied node away, would destroy what there is to see, and
// replace a machine as a side effect. Deleting the ClusterUpdate gives
// everything back at once, but for a node that is still running its steps.
// held-until is for others: when refit itself is gone for good, whoever finds
// the mark sees that it has run out and may be taken off.
//
// Kinds that the cluster does not have are left out. In a cluster whose machines
// are managed from elsewhere there is no Machine to mark; Cluster API's own
// extension does that there.
//
// Files: record.go the record (pure), decide.go who is held now (pure), apply.go
// the writes, reconcile.go the loop. Callers: internal/controller;
// controller/clusterupdates with the mark.
package interlocks
