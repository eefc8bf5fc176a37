// Package supervisor is the process that keeps a lab alive: its mains switch, its
// network switch, and the eye on what leaves it.
//
// Promise: one supervisor per lab, in a network namespace of its own with the bridge,
// the addresses and the ports of all nodes. The machine's own network has only the
// loopback listener that the supervisor inherits. reboot(2) in a pid namespace ends pid 1
// with SIGHUP (restart) or SIGINT (halt): the supervisor starts the node again or leaves
// it off. It also starts it again when pid 1 dies in any other way, like a machine after
// a panic. It answers every DNS question at once (nothing exists), and counts each packet
// and question to an outside address.
//
// RunInNode runs a command in all namespaces and control groups of a node, with the node's
// files only. It refuses a process in the pid namespace of this machine: a reboot "in the
// node" would be the machine's.
//
// Inputs: [Config] as JSON in the lab's directory, machine.json of every node,
// a listener and a pipe from its starter. Outputs: nodes/NAME/pid.json,
// console.log, and answers on the socket [SocketName]; see [Call].
//
// Started by internal/lab. When it is killed, its namespace goes with it; the
// nodes are found by their control groups.
package supervisor
