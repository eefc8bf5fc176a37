// Package nodeexec runs a command in a node of a lab.
//
// Promise: the command is in all namespaces and control groups of the node, and
// sees the node's files only. A command is never run in the machine's own pid
// namespace: a reboot "in the node" would be the machine's.
//
// Inputs: the directory of a node that is on. Called, in a process of its own,
// by internal/lab.
package nodeexec

import (
	"os/exec"
	"syscall"
)

// ExitStatus is what a shell would say: 128 and the signal for a killed command.
func ExitStatus(e *exec.ExitError) int {
	if how, ok := e.Sys().(syscall.WaitStatus); ok && how.Signaled() {
		return 128 + int(how.Signal())
	}
	return e.ExitCode()
}
