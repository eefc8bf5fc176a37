package installcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/refit-dev/refit/internal/cli/console"
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

// copyFile writes a new file on the host, which must have a digest there. The directory belongs to all
// users, so it never writes into a file that another one made.
func (r remote) copyFile(ctx context.Context, content io.Reader, path, mode, digest string) error {
	sum, err := r.output(ctx, content, "umask 077 && rm -f "+path+" && set -C && cat > "+path+" && chmod "+mode+" "+path+" && sha256sum < "+path)
	if err != nil {
		return err
	}
	if got, _, _ := strings.Cut(sum, " "); got != strings.TrimPrefix(digest, "sha256:") {
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s has sha256:%s there, it was sent with %s", path, got, digest))
	}
	return nil
}

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
