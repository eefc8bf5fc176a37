package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/refit-dev/refit/internal/lab/machine"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// Names, as argument zero, under which this program is started again.
const (
	supervisorProcess = "refit-lab-supervisor"
	execProcess       = "refit-lab-exec"
)

// The steps inside namespaces need a process of their own. The lab must work in every
// binary that links it (the command line, a test), so the package takes over such a
// process before main.
func init() {
	if len(os.Args) == 0 || !strings.HasPrefix(os.Args[0], "refit-lab-") {
		return
	}
	switch os.Args[0] {
	case supervisorProcess:
		leave(supervisor.Run(os.Args[1]))
	case supervisor.NodeProcess:
		err := machine.Become(os.Args[1])
		fmt.Fprintln(os.NewFile(machine.Fault, "fault"), err)
		leave(err)
	case execProcess:
		leave(supervisor.RunInNode(os.Args[1], os.Args[2:]))
	}
}

// leave ends the process; a command's exit status is passed on.
func leave(err error) {
	if err == nil {
		os.Exit(0)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(supervisor.ExitStatus(exit))
	}
	fmt.Fprintln(os.Stderr, "refit-lab:", err)
	if errors.Is(err, exec.ErrNotFound) {
		os.Exit(127) // as a shell would
	}
	os.Exit(125)
}
