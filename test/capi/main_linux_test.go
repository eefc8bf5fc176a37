package capi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/refit-dev/refit/internal/lab/components"
)

// Variables of the environment: the first asks for the test, the second says that
// the process is in its own namespaces already.
const (
	asked  = "REFIT_CAPI"
	inside = "REFIT_CAPI_INSIDE"
)

// kubernetesOfServer is the release whose etcd and API server are used.
const kubernetesOfServer = "v1.36.3"

// skipUnlessAsked skips with what to do.
func skipUnlessAsked(t *testing.T) {
	t.Helper()
	if os.Getenv(asked) != "1" {
		t.Skip("Cluster API's controllers are built and run by `make test-capi` (" + asked + "=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the controllers run in a network namespace of their own")
	}
}

// TestMain builds what is needed, and runs the tests in namespaces of their own:
// no network but loopback, and no process that outlives them.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asked) != "1" || os.Geteuid() != 0:
		os.Exit(m.Run()) // they skip
	case os.Getenv(inside) == "":
		os.Exit(outside())
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "loopback:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func outside() int {
	say := func(line string) { fmt.Fprintln(os.Stderr, line) }
	if _, err := components.ClusterAPIManagers(context.Background(), say); err != nil {
		say(err.Error())
		return 1
	}
	if _, err := components.Release(context.Background(), kubernetesOfServer, say); err != nil {
		say(err.Error())
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	// The first process of a PID namespace takes all others with it when it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil:
		say("run the tests in namespaces of their own: " + err.Error())
		return 1
	}
	return 0
}
