// Package ignition makes and changes the configurations of a machine's first boot:
// Ignition, and cloud-init where a host has no Ignition.
//
// Promise: pure.
//
//   - Upgrade carries Ignition of version 2, which new boot images do not read, over to
//     version 3; ReplaceAuthority renews the authority in it. Every key is either kept or
//     named in an error, and then nothing is changed. A configuration of version 3, and a
//     text that is no Ignition, stays as it is.
//   - FromNodeConfig and CloudInit write a node's own configuration: the bytes, modes and
//     owners that the agent verifies later, so that the node is adopted without a change,
//     a build or a restart. What comes with a bundle, and what needs a running kubelet, is
//     left to the agent and named. A pool with an OS image boots it, by digest, before
//     the machine joins: a unit switches the host and restarts it once. A host that cannot
//     be switched keeps its own OS, and the cluster reports it later.
//   - DecideAnswer decides what a machine gets that asks for its configuration. The age of
//     its boot image is what Ignition reports of itself in its headers. A boot image that
//     is too old gets a configuration with only the reason, for its console. A client that
//     is no Ignition is refused, with a sentence.
//   - Import reads the node configuration of other tools: Ignition of version 3 in JSON, and
//     MachineConfig in YAML or JSON. It carries every key over or lists it in NotImported with
//     the reason. It drops secrets without repeating them, because every node reads a
//     NodeConfig. It downloads nothing.
//
// Inputs: JSON, YAML, a rendered model.NodeConfig, two headers. Outputs: text, an Answer, an
// Imported configuration, or an error that names the place. Callers: controller/bootimages,
// controller/joinserver, the command line.
package ignition
