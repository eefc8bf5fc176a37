// Package firstboot writes a node's configuration as what configures a machine at its first
// boot: Ignition of version 3, or cloud-init.
//
// Promise: pure. What the agent will verify after the machine has joined is what is
// written here: the same bytes, modes and owners, so that the node is as its pool wants
// and is adopted without anything being changed, built or restarted. A pool with an OS
// image boots it, by digest, before anything joins: a unit switches the host, restarts
// it once, and lets what joins start only when that image is booted. A host that cannot
// be switched goes on with its own OS, and the cluster says so later.
//
// What comes with a bundle, and what needs a kubelet that runs, is left to the agent and
// is named (Left). Nothing secret is added to what a configuration has.
//
// Inputs: a rendered configuration. Outputs: text. Caller: internal/controller/joinserver.
// Example:
//
//	text, left, err := day1.Ignition(config)
package firstboot
