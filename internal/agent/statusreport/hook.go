package statusreport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/refit-dev/refit/internal/text"
)

// HookLimit is how long the program of a Hook may run.
const HookLimit = 10 * time.Second

const (
	// hookOutput bounds what is kept of the program's output.
	hookOutput = 1024
	// hookLinks bounds the symbolic links in the program's path.
	hookLinks = 16
)

// Hook runs a program of the administrator with the state of a node: for a light or a beeper.
type Hook struct {
	// Path of the program; it gets no arguments, and no shell starts it.
	Path string
	// Limit is how long it may run; 0 is HookLimit.
	Limit time.Duration
}

// HookKey changes when the hook must run: with the colour, the sentence or the answer about the
// medium.
func HookKey(n NodeStatus) string {
	return strings.Join([]string{n.Colour, n.Sentence, n.MayPullMedium}, "\n")
}

// Run runs the program to its end. At the limit, or when the context ends, it kills the program and
// its children.
func (h Hook) Run(ctx context.Context, n NodeStatus) error {
	if err := checkProgram(h.Path); err != nil {
		return fmt.Errorf("statusHook %s is not run: %w", h.Path, err)
	}
	limit := cmp.Or(h.Limit, HookLimit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := &boundedOutput{}
	c := exec.CommandContext(ctx, h.Path)
	c.Dir, c.Env = "/", hookEnv(n)
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	err := c.Run()
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("statusHook %s was killed after %s", h.Path, limit)
	}
	if said := text.CleanLine(string(out.kept)); said != "" {
		return fmt.Errorf("statusHook %s: %w: %s", h.Path, err, said)
	}
	return fmt.Errorf("statusHook %s: %w", h.Path, err)
}

// hookEnv is the program's whole environment.
func hookEnv(n NodeStatus) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	for _, v := range [][2]string{{"NODE", n.Node}, {"COLOUR", n.Colour}, {"SENTENCE", n.Sentence},
		{"PROGRESS", n.Progress}, {"PERCENT", strconv.Itoa(n.Percent)}, {"MAY_PULL_MEDIUM", n.MayPullMedium}} {
		env = append(env, "REFIT_"+v[0]+"="+strings.ReplaceAll(text.CleanLine(v[1]), "\x00", ""))
	}
	return env
}

// boundedOutput keeps the beginning and drops the rest, so that the program does not stop at a full
// pipe.
type boundedOutput struct{ kept []byte }

func (b *boundedOutput) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), hookOutput-len(b.kept))]...)
	return len(p), nil
}

// checkProgram refuses a program that another user than the agent's, which is root, can replace: by
// its file, a directory above it, or a symbolic link on the way.
func checkProgram(path string) error {
	if !filepath.IsAbs(path) {
		return errors.New("its path is not absolute")
	}
	for range hookLinks {
		next, err := checkWay(filepath.Clean(path))
		if err != nil || next == "" {
			return err
		}
		path = next
	}
	return errors.New("its path has too many symbolic links")
}

// checkWay checks the parts of a path down to the first symbolic link, and returns where that leads.
func checkWay(path string) (next string, err error) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for at, i := "/", 0; ; i++ {
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if err := checkOwner(at, info); err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(at)
			if err != nil {
				return "", err
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(at), target)
			}
			return filepath.Join(append([]string{target}, parts[i:]...)...), nil
		}
		if i == len(parts) {
			if !info.Mode().IsRegular() {
				return "", errors.New("it is not a regular file")
			}
			return "", nil
		}
		at = filepath.Join(at, parts[i])
	}
}

// checkOwner refuses what others may write. In a directory with the sticky bit only the owner
// replaces a file.
func checkOwner(path string, info fs.FileInfo) error {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s does not belong to root; set its owner with chown root", path)
	}
	sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0
	if info.Mode()&fs.ModeSymlink == 0 && !sticky && info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others than root may write %s; run: chmod go-w %s", path, path)
	}
	return nil
}
