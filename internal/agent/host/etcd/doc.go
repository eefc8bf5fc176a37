// Package etcd asks the etcd member of this node how it is, and for a snapshot. It also
// reads snapshots, in a scratch directory.
//
// Promise: it changes nothing. Health is read from two pages (health and metrics)
// on the member's loopback address for metrics, without any credential; a member
// that does not answer is not healthy, with the reason. A snapshot, and what the
// other members say, comes over the member's API with the node's own client
// certificate; a snapshot is compared with the hash that etcd gives with it.
// Rehearse restores a snapshot below a directory of its caller and reads it whole.
//
// Input: the member's command line, as its static pod has it; snapshots. Outputs: Health,
// Member, Restored. Callers: agent/service, the updaters kubeadm and kubelet.
package etcd
