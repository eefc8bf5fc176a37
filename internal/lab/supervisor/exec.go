package supervisor

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
