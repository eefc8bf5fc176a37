// Package etcd asks the etcd member of this node how it is.
//
// Promise: it reads two pages (health and metrics) on the member's loopback
// address for metrics, needs no credential, and changes nothing. A member that
// does not answer is a member that is not healthy, with the reason.
//
// Input: the member's command line, as its static pod has it. Output: Health.
// Caller: agent/service.
package etcd
