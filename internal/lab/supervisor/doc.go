// Package supervisor is the process that keeps a lab alive: its mains switch, its
// network switch, and the eye on what leaves it.
//
// Promise: one supervisor per lab, in a network namespace of its own that holds
// the bridge, the addresses and the ports of all nodes; in the machine's own
// network there is nothing but the loopback listener the supervisor is handed.
// reboot(2) in a pid namespace ends pid 1 with SIGHUP (restart) or SIGINT (halt):
// the supervisor starts the node again or leaves it off, and starts it again
// too when pid 1 dies in any other way, as a machine does that panics. It
// answers every name question at once (nothing exists), and counts each packet
// and question that would have gone to the world outside.
//
// Inputs: [Config] as JSON in the lab's directory, machine.json of every node,
// a listener and a pipe from its starter. Outputs: nodes/NAME/pid.json,
// console.log, and answers on the socket [SocketName]; see [Call].
//
// Started by internal/lab. When it is killed, its namespace goes with it; the
// nodes are found by their control groups.
package supervisor
