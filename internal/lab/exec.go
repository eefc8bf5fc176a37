package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/machine"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// Exec runs a command in a node, in all its namespaces and control groups, with
// a clean environment. A non-zero exit status comes back as *exec.ExitError.
// When ctx ends, the command is killed.
func (l *Lab) Exec(ctx context.Context, node string, stdin io.Reader, stdout, stderr io.Writer, argv ...string) error {
	if err := l.has(node); err != nil {
		return err
	}
	if len(argv) == 0 {
		return errors.New("no command to run in node " + node)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{execProcess, l.nodeDir(node)}, argv...)
	cmd.Env = l.insideEnv()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it kills the command, see inside.Run
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}

// Output runs a command in a node and returns what it wrote; the error holds
// what it complained about.
func (l *Lab) Output(ctx context.Context, node string, argv ...string) (string, error) {
	var out, complaint strings.Builder
	if err := l.Exec(ctx, node, nil, &out, &complaint, argv...); err != nil {
		return out.String(), fmt.Errorf("%s: %s: %w: %s", node, strings.Join(argv, " "), err, lastLines(complaint.String()+out.String(), 20))
	}
	return out.String(), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (l *Lab) insideEnv() []string {
	row, ok := distribution.ByName(l.Config.Distribution)
	if !ok {
		row.Places = distribution.KubeadmPlaces()
	}
	env := []string{"HOME=/root", machine.SearchPath, "KUBECONFIG=" + row.Places.AdminConfig, "LANG=C.UTF-8"}
	if term := os.Getenv("TERM"); term != "" {
		env = append(env, "TERM="+term)
	}
	return env
}

// Path is where a file of a node, given by its absolute path there, can be
// reached on the machine while the node is on. Symbolic links in it would be
// followed on the machine's side.
func (l *Lab) Path(node, path string) (string, error) {
	if err := l.has(node); err != nil {
		return "", err
	}
	p, err := supervisor.LoadProcess(l.nodeDir(node))
	if err != nil || !p.Alive() {
		return "", fmt.Errorf("node %s is off", node)
	}
	return filepath.Join(fmt.Sprintf("/proc/%d/root", p.PID), path), nil
}

// WriteFile writes a file in a node.
func (l *Lab) WriteFile(ctx context.Context, node, path string, content []byte, mode os.FileMode) error {
	script := fmt.Sprintf("umask 077; cat > %[1]s && chmod %04[2]o %[1]s", quote(path), mode.Perm())
	var complaint strings.Builder
	if err := l.Exec(ctx, node, strings.NewReader(string(content)), nil, &complaint, "sh", "-c", script); err != nil {
		return fmt.Errorf("writing %s in %s: %w: %s", path, node, err, complaint.String())
	}
	return nil
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
