package inputs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/cli/console"
)

const (
	// renderer is the program that renders charts and kustomizations.
	renderer = "refit-render"
	// renderTimeout ends templates that do not end by themselves.
	renderTimeout = time.Minute
	// maxReason bounds the text of an error in bytes.
	maxReason = 64 << 10
)

// render runs the renderer with a standard input, and returns the manifests and the directory
// that they are in. It has no environment: nothing in it reaches a template.
func render(parent context.Context, stdin []byte, args ...string) ([]Manifest, string, error) {
	program, err := findRenderer()
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeoutCause(parent, renderTimeout, fmt.Errorf("its templates did not end within %v", renderTimeout))
	defer cancel()
	reason := &beginning{}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.WaitDelay, cmd.Stdin, cmd.Stderr = []string{}, time.Second, bytes.NewReader(stdin), reason
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	all, name, err := readRendered(out)
	if err != nil {
		cancel() // it may go on writing
	}
	exit := renderExit(program, cmd.Wait(), reason.String())
	switch {
	case parent.Err() != nil:
		err = context.Cause(parent)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = console.UsageError(context.Cause(ctx))
	case err == nil:
		err = exit
	}
	return all, name, err
}

// renderExit explains how the renderer ended.
func renderExit(program string, err error, reason string) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == console.ExitUsage {
		return console.UsageError(errors.New(reason))
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, reason)
	}
	return nil
}

// findRenderer finds it next to this program, or in PATH.
func findRenderer() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil { // kubectl's plug-ins are links
		return "", err
	}
	dir := filepath.Dir(self)
	near := filepath.Join(dir, renderer)
	if runtime.GOOS == "windows" {
		near += ".exe"
	}
	if _, err := os.Stat(near); err == nil {
		return near, nil
	}
	program, err := exec.LookPath(renderer)
	if err != nil {
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("the program %s, which renders it, is neither in %s nor in PATH. Copy it there from the archive of refit's release", renderer, dir))
	}
	return program, nil
}

// readRendered reads the manifests from the renderer's archive. name is the first directory.
func readRendered(r io.Reader) (all []Manifest, name string, err error) {
	left := int64(maxRendered)
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return all, name, nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("read the answer of %s: %w", renderer, err)
		}
		if h.Typeflag == tar.TypeDir {
			name = strings.TrimSuffix(h.Name, "/")
			continue
		}
		if left -= h.Size; left < 0 {
			return nil, "", console.UsageErrorf("its manifests have more than %d bytes", maxRendered)
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return nil, "", fmt.Errorf("read the answer of %s: %w", renderer, err)
		}
		all = append(all, Manifest{File: h.Name, Data: data, Rendered: true})
	}
}

// beginning keeps the first bytes that are written.
type beginning struct{ kept []byte }

func (b *beginning) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), maxReason-len(b.kept))]...)
	return len(p), nil
}

func (b *beginning) String() string { return strings.TrimSpace(string(b.kept)) }
