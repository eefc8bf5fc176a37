package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/distribution"
)

// servicePart is a service of the node that updaters restart: the container runtime or the
// kubelet. It embeds nothing: promoted methods would make the agent larger.
type servicePart struct {
	host       *nodeHost
	what, unit string
	ready      func(context.Context) error
}

// unitOf returns the unit name of a container runtime.
func unitOf(rt imagekeeper.NodeRuntime) string {
	if _, ok := rt.(imagekeeper.CRIO); ok {
		return "crio.service"
	}
	return "containerd.service"
}

func runtimePart(h *nodeHost) servicePart {
	return servicePart{host: h, what: "the container runtime", unit: h.runtime, ready: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, apiTime)
		defer cancel()
		return h.cri.Ready(ctx)
	}}
}

func kubeletPart(h *nodeHost) servicePart {
	return servicePart{host: h, what: "the kubelet", unit: kubeletUnit, ready: kube.KubeletHealthy}
}

// Containers of all pods.
func (p servicePart) Containers(ctx context.Context) ([]cri.Container, error) {
	return p.host.Containers(ctx)
}

// Config returns a rendered configuration of the desired state.
func (p servicePart) Config(name string) (data string, ok bool) { return p.host.Config(name) }

// ImageID returns the ID behind an image name.
func (p servicePart) ImageID(ctx context.Context, name string) (string, error) {
	return p.host.ImageID(ctx, name)
}

// ReloadUnits makes systemd reload all unit files.
func (p servicePart) ReloadUnits(ctx context.Context) error { return p.host.ReloadUnits(ctx) }

// What returns the name of the service for people.
func (p servicePart) What() string { return p.what }

// Unready returns why the service is not ready, "" if it is.
func (p servicePart) Unready(ctx context.Context) string {
	if err := p.ready(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// Log returns the end of the service's log.
func (p servicePart) Log(ctx context.Context) string { return systemd.Log(ctx, p.unit) }

// Restart restarts the service.
func (p servicePart) Restart(ctx context.Context) error {
	return p.host.unit(ctx, func(m *systemd.Manager) error { return m.Restart(ctx, p.unit) })
}

func (p servicePart) pid(ctx context.Context) (pid int, err error) {
	err = p.host.unit(ctx, func(m *systemd.Manager) (err error) {
		pid, err = m.MainPID(ctx, p.unit)
		return err
	})
	return pid, err
}

// Process returns the PID and the start time: no other process has both.
func (p servicePart) Process(ctx context.Context) (string, error) {
	pid, err := p.pid(ctx)
	if err != nil || pid == 0 {
		return "", err
	}
	at, err := kube.StartedAt(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the process has just exited
	}
	return fmt.Sprintf("%d %d", pid, at.UnixMilli()), err
}

// Started returns the start time of the process.
func (p servicePart) Started(ctx context.Context) (time.Time, error) {
	pid, err := p.pid(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if pid == 0 {
		return time.Time{}, fmt.Errorf("%s does not run", p.what)
	}
	return kube.StartedAt(pid)
}

// Flags returns the arguments of the process, nil if it does not run.
func (p servicePart) Flags(ctx context.Context) ([]string, error) {
	pid, err := p.pid(ctx)
	if err != nil || pid == 0 {
		return nil, err
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if errors.Is(err, fs.ErrNotExist) || len(b) == 0 {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), err
}

// Command returns the ExecStart of the unit, variables unexpanded.
func (p servicePart) Command(ctx context.Context) (argv []string, err error) {
	err = p.host.unit(ctx, func(m *systemd.Manager) (err error) {
		argv, err = m.Command(ctx, p.unit)
		return err
	})
	if err == nil && (len(argv) == 0 || !filepath.IsAbs(argv[0])) {
		err = fmt.Errorf("%s has no program in ExecStart", p.unit)
	}
	return argv, err
}

// ModTime returns the modification time of a file.
func (p servicePart) ModTime(path string) (time.Time, error) {
	st, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

// Program returns the path of a program, "" if this node has none of that name. The runtime is
// the program that its unit starts; its shims are in the same directory.
func (p servicePart) Program(ctx context.Context, name string) (string, error) {
	var own string
	if argv, err := p.Command(ctx); err == nil {
		own = argv[0]
	}
	if own != "" && filepath.Base(own) == name {
		return own, nil
	}
	if own != "" && strings.HasPrefix(name, filepath.Base(own)) {
		if shim := filepath.Join(filepath.Dir(own), name); exists(shim) {
			return shim, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", nil //nolint:nilerr // there is none
	}
	if path, err = filepath.EvalSymlinks(path); err != nil || p.host.isSupervisor(path) {
		return "", err // k3s has links to itself, as ctr: what replaces one would replace k3s
	}
	return path, nil
}

func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// RuntimeReplaced reports whether the runtime's file was replaced since its process started.
func (p servicePart) RuntimeReplaced(ctx context.Context) (bool, error) {
	pid, err := p.pid(ctx)
	if err != nil || pid == 0 {
		return false, err
	}
	proc, err := kube.ProcessOf(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return proc.Replaced, err
}

// PluginDir returns the directory of CNI plugins, "" where the distribution brings its own.
func (p servicePart) PluginDir() string {
	return p.host.placeOf(distribution.WhatPlugins, distribution.KubeadmPlaces().CNI)
}

var sandboxLine = regexp.MustCompile(`(?m)^\s*(?:sandbox|sandbox_image) = ['"]([^'"]+)['"]`)

// SandboxImage returns the sandbox image of the runtime's merged configuration.
func (p servicePart) SandboxImage(ctx context.Context) (string, error) {
	argv, err := p.Command(ctx)
	if err != nil {
		return "", err
	}
	args := []string{"config", "dump"}
	for i, a := range argv {
		if (a == "-c" || a == "--config") && i+1 < len(argv) {
			args = slices.Insert(args, 0, "--config", argv[i+1])
		}
		if v, ok := strings.CutPrefix(a, "--config="); ok {
			args = slices.Insert(args, 0, "--config", v)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], args...).Output()
	if err != nil {
		return "", fmt.Errorf("read the container runtime's configuration: %w", err)
	}
	m := sandboxLine.FindSubmatch(out)
	if m == nil {
		return "", errors.New("the container runtime's configuration names no sandbox image")
	}
	return string(m[1]), nil
}
