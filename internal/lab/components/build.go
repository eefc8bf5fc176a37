package components

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// heartbeat is how often a build that goes on says so.
const heartbeat = 10 * time.Second

// build makes the binaries of s that are not there yet and returns the
// directory they are in. Binaries are published one by one, by rename: what a
// cut-off build had finished is not built again.
func build(ctx context.Context, s set, progress Progress) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	files, err := moduleFiles(s)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "bin", s.name+"-"+setKey(s, files))
	if complete(dir, s) {
		return dir, nil
	}
	return dir, locked(ctx, dir+".lock", progress, func() error {
		return buildMissing(ctx, s, files, dir, progress)
	})
}

func complete(dir string, s set) bool {
	for _, b := range s.binaries {
		if !exists(filepath.Join(dir, b.name)) {
			return false
		}
	}
	return true
}

func setKey(s set, files map[string][]byte) string {
	parts := []string{s.ldflags, runtime.GOOS, runtime.GOARCH}
	if s.cgo || s.tags != "" { // the others keep the names that they have
		parts = append(parts, fmt.Sprint(s.cgo), s.tags)
	}
	for _, name := range sortedKeys(files) {
		parts = append(parts, name, string(files[name]))
	}
	for _, b := range s.binaries {
		parts = append(parts, b.name, b.pkg)
	}
	return key(parts...)
}

// moduleFiles are the files of the module that s is built in.
func moduleFiles(s set) (map[string][]byte, error) {
	files := map[string][]byte{}
	if s.module != "" {
		for _, part := range []string{"mod", "sum"} {
			data, err := modules.ReadFile("modules/" + s.module + "." + part)
			if err != nil {
				return nil, err
			}
			files["go."+part] = data
		}
		return files, nil
	}
	files["go.mod"] = []byte("module refit.dev/lab/own\n\ngo 1.25.0\n")
	top := cmp.Or(s.sources, "source")
	err := fs.WalkDir(sources, top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sources.ReadFile(path)
		files[strings.TrimPrefix(path, top+"/")] = data
		return err
	})
	return files, err
}

func buildMissing(ctx context.Context, s set, files map[string][]byte, dir string, progress Progress) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for name, data := range files {
		path := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	for i, b := range s.binaries {
		out := filepath.Join(dir, b.name)
		if exists(out) {
			continue
		}
		what := fmt.Sprintf("building %s of %s (%d/%d)", b.name, s.name, i+1, len(s.binaries))
		if err := buildOne(ctx, work, s, b, out, what, progress); err != nil {
			return err
		}
	}
	return nil
}

func buildOne(ctx context.Context, work string, s set, b binary, out, what string, progress Progress) error {
	start := time.Now()
	progress.say("%s ...", what)
	stop := every(heartbeat, func() { progress.say("%s, %d s ...", what, int(time.Since(start).Seconds())) })
	defer stop()
	temp := filepath.Join(work, "out-"+b.name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", s.ldflags, "-tags", s.tags, "-o", temp, b.pkg)
	if len(b.c) > 0 {
		var err error
		if cmd, err = compileC(ctx, work, b, temp); err != nil {
			return fmt.Errorf("%s failed: %w", what, err)
		}
	}
	cmd.Dir = work
	cmd.Env = goEnv(s.cgo)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s failed: %w\n%s\nthe Go module proxy must be reachable the first time; nothing half-built was kept", what, err, tail(stderr.String(), 20))
	}
	if err := syncFile(temp); err != nil {
		return err
	}
	return os.Rename(temp, out)
}

// goEnv is the caller's environment with what would change the result fixed.
// GOFLAGS and GOWORK of the caller would pull the build into another module.
func goEnv(cgo bool) []string {
	var env []string
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "CGO_ENABLED", "GOFLAGS", "GOWORK", "GOOS", "GOARCH", "GO111MODULE":
		default:
			env = append(env, kv)
		}
	}
	enabled := "CGO_ENABLED=0"
	if cgo {
		enabled = "CGO_ENABLED=1"
	}
	return append(env, enabled, "GOFLAGS=-mod=readonly", "GOWORK=off")
}

// every calls do again and again until the returned function is called.
func every(interval time.Duration, do func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				do()
			}
		}
	}()
	return func() { close(done); <-ended }
}

// syncFile makes the content durable before a rename makes it count.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
