// Package netns is a network of a few hosts on one machine: processes in network
// namespaces of their own on one switch, each with its own rate up and down.
//
// Promise: nothing of it is seen outside or outlives it: the switch is in a
// namespace that only the caller's thread and the hosts' processes keep alive, and
// the hosts die with that thread. Bytes are counted at each host's own port of the
// switch. It has no delay and no loss: many kernels lack netem.
//
// Inputs: commands to start, rates. Outputs: running processes, addresses, counts.
// Needs root and the kernel's tbf. Called by bench.
//
//	n, err := hosts.New()
//	defer n.Close()
//	err = n.Start(cmd, 1, 200) // host 1, 10.231.7.1, 200 Mbit/s each way
package netns
