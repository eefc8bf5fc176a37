package osdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Runner runs a program of the host.
type Runner interface {
	// Run returns what the program wrote to its standard output. A program that
	// ended with another status than 0 is a ToolError; one that is not there is
	// exec.ErrNotFound.
	Run(ctx context.Context, stdin io.Reader, argv ...string) (stdout []byte, err error)
}

// Host is what a driver works on.
type Host struct {
	Runner Runner
	// Root is where the host's files are; empty is /.
	Root string
}

// Command runs programs of this machine.
type Command struct{}

// Run runs a program. The variables by which programs think that they are in a
// container are left out: bootc refuses to work then.
func (Command) Run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = append(withoutContainer(os.Environ()), "LC_ALL=C.UTF-8")
	c.Stdin = stdin
	return Output(c)
}

func withoutContainer(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, "container=") && !strings.HasPrefix(e, "LC_ALL=") {
			out = append(out, e)
		}
	}
	return out
}

// Output runs a command and returns what it wrote, as Runner says.
func Output(c *exec.Cmd) ([]byte, error) {
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return out.Bytes(), &ToolError{Argv: c.Args, Code: exit.ExitCode(), Said: lastLines(said.String()+out.String(), 5)}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.Args[0], err)
	}
	return out.Bytes(), nil
}

// lastLines keeps the end of what a program said, on one line.
func lastLines(text string, n int) string {
	var all []string
	for _, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			all = append(all, l)
		}
	}
	return strings.Join(all[max(0, len(all)-n):], "; ")
}

// hasOSTree reports whether the host's libostree is of this version or later. Its commands do
// not say what the library can do.
func (h Host) hasOSTree(ctx context.Context, year, release int) bool {
	out, err := h.Runner.Run(ctx, nil, "ostree", "--version")
	_, version, ok := strings.Cut(string(out), "Version: '")
	version, _, closed := strings.Cut(version, "'")
	y, r, dotted := strings.Cut(version, ".")
	hasYear, err1 := strconv.Atoi(y)
	hasRelease, err2 := strconv.Atoi(r)
	return err == nil && err1 == nil && err2 == nil && ok && closed && dotted && (hasYear > year || hasYear == year && hasRelease >= release)
}

// lockFile keeps libostree from finalizing the staged deployment at shutdown, so that an
// unplanned restart boots the old OS. It disappears with a reboot. Newer versions write it next to
// a record of their own.
func (h Host) lockFile() string {
	return filepath.Join(h.Root, "/run/ostree/staged-deployment-locked")
}

func (h Host) locked() bool {
	_, err := os.Stat(h.lockFile())
	return err == nil
}

// nextRoot reports whether a restart of user space would enter another OS: its root is mounted
// already.
func (h Host) nextRoot() bool {
	_, err := os.Stat(filepath.Join(h.Root, "/run/nextroot/usr"))
	return err == nil
}

// Missing reports whether a program is not on the host.
func Missing(err error) bool {
	var tool *ToolError
	return errors.Is(err, exec.ErrNotFound) || errors.As(err, &tool) && tool.Code == 127
}
