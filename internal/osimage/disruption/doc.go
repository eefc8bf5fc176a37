// Package disruption decides what a change of a node's configuration costs: which
// services reload, which restart, whether pods are evicted, whether it reboots.
//
// Promise: pure. What no rule speaks of means a reboot. A pool's own rules come
// before the defaults; of the rules of one list the closest counts: the exact
// path, then the longest pattern. Every action is there once. A reboot stands
// alone, since it does all the rest. Each answer says which rule gave it.
//
// Inputs: rules, and what changed between two configurations. Outputs: actions,
// whether the image must change. Callers: internal/controller/nodeconfigs,
// internal/controller/osimages. Example:
//
//	a := disruption.Decide(rules, disruption.Changes(old, wanted))
package disruption
