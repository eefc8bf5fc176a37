package installcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// remote runs commands on one host through a program with ssh's calling
// convention.
type remote struct {
	program string // may carry arguments: "ssh -i key"
	host    string
}

// output runs a shell command on the host with stdin and returns its standard
// output.
func (r remote) output(ctx context.Context, stdin io.Reader, command string) (string, error) {
	words := append(strings.Fields(r.program), r.host, command)
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Stdin = stdin
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, tail(errs.String(), 5))
	}
	return out.String(), nil
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
