// Package distribution is the table of Kubernetes distributions: how each is recognized on a
// node, where it keeps what, and what refit does there.
//
// Promise: it is pure. It reads no file; callers tell it which paths exist (Detect) and what
// units say (ReadUnit). A node with marks of two distributions is an AmbiguousError that
// names both, and a node with marks of none an UnknownError that names what was seen. A
// distribution is never guessed.
//
// The rows come from the sources and documents of the projects; each names them. Tests of
// refit ran the row kubeadm on real nodes, and k3s and RKE2 on look-alikes of the lab.
//
// Versions: distributions publish builds of one Kubernetes release, as v1.35.4+k3s2 after
// v1.35.4+k3s1. SplitVersion finds the distribution and the number of the build, and
// MoveProblem says why a version cannot be moved.
//
// Inputs: paths, texts of units, versions. Outputs: Row, Found, Build. Callers: the agent's
// observation of a node (internal/agent/host/kube), componentversion, the planner, capidiff.
// Adding a distribution is one row here and one case in the conformance test.
package distribution
