// Peak runs a program and writes the peak of its resident memory in KiB to file
// descriptor 3. The kernel counts what a process shares with its parent until it
// executes a program as its own: this parent is small, a test under the race detector is
// not.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	c := exec.Command(os.Args[1], os.Args[2:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	_ = c.Run() // the exit code is passed on
	if c.ProcessState == nil {
		os.Exit(125)
	}
	fmt.Fprintln(os.NewFile(3, "peak"), c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	os.Exit(c.ProcessState.ExitCode())
}
