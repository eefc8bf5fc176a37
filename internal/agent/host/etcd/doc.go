// Package etcd asks the etcd member of this node how it is, and for a snapshot.
//
// Promise: it changes nothing. Health is read from two pages (health and metrics)
// on the member's loopback address for metrics, without any credential; a member
// that does not answer is not healthy, with the reason. A snapshot, and what the
// other members say, comes over the member's API with the node's own client
// certificate; a snapshot is compared with the hash that etcd gives with it.
//
// Input: the member's command line, as its static pod has it. Outputs: Health,
// Member. Callers: agent/service, the updater kubeadm.
package etcd
