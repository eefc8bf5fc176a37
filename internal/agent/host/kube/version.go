package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Binaries asks programs for their version and remembers the answer as long as
// the file is the same.
type Binaries struct {
	mu   sync.Mutex
	seen map[string]answer
}

type answer struct{ file, version string }

var versionForm = regexp.MustCompile(`v[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*`)

// Version runs a program with arguments and returns the first version in what
// it prints, for example v1.36.3.
func (b *Binaries) Version(ctx context.Context, path string, args ...string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", path, err)
	}
	file := fmt.Sprint(st.Size(), st.ModTime().UnixNano())
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		file += fmt.Sprint(" ", sys.Dev, sys.Ino)
	}
	b.mu.Lock()
	have, ok := b.seen[path]
	b.mu.Unlock()
	if ok && have.file == file {
		return have.version, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", path, err)
	}
	v := versionForm.FindString(string(out))
	if v == "" {
		return "", fmt.Errorf("version of %s: it says %.80q", path, out)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[string]answer{}
	}
	b.seen[path] = answer{file, v}
	return v, nil
}

// Process is a running program.
type Process struct {
	PID int
	// Exe is the file it was started from; Replaced says that another file is
	// there now.
	Exe      string
	Replaced bool
}

// ProcessOf inspects a process.
func ProcessOf(pid int) (Process, error) {
	link := "/proc/" + strconv.Itoa(pid) + "/exe"
	exe, err := os.Readlink(link)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	p := Process{PID: pid, Exe: exe}
	const deleted = " (deleted)"
	if n := len(exe) - len(deleted); n > 0 && exe[n:] == deleted {
		p.Exe, p.Replaced = exe[:n], true
	}
	// An overlay may keep the name while the file is another one.
	a, err1 := os.Stat(link)
	b, err2 := os.Stat(p.Exe)
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		p.Replaced = true
	}
	return p, nil
}

// StartedAt is when a process was started, exact to a hundredth of a second but
// for the machine's idea of when it was booted, which is in seconds.
func StartedAt(pid int) (time.Time, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return time.Time{}, fmt.Errorf("process %d: %w", pid, err)
	}
	// The name, in brackets, may hold anything; the start is the 20th word after it.
	words := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(words) < 20 {
		return time.Time{}, fmt.Errorf("process %d: its state cannot be read", pid)
	}
	ticks, err := strconv.ParseInt(words[19], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("process %d: %w", pid, err)
	}
	boot, err := bootTime()
	return boot.Add(time.Duration(ticks) * (time.Second / 100)), err
}

func bootTime() (time.Time, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the boot: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			sec, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return time.Unix(sec, 0), err
		}
	}
	return time.Time{}, errors.New("time of the boot: the kernel does not say it")
}

// Path by which the running file itself can be executed, also when its name is
// gone.
func (p Process) Path() string { return "/proc/" + strconv.Itoa(p.PID) + "/exe" }

// KubeletHealthy asks the kubelet's health port.
func KubeletHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", nil)
	if err != nil {
		return err
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("kubelet's health: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("kubelet's health: %s", resp.Status)
	}
	return nil
}
