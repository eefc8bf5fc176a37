package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// resultsVar names the directory for results. Without it the long measurements are
// not made: they want the machine for themselves.
const resultsVar = "REFIT_BENCH_RESULTS"

// machine is where and when something was measured.
type machine struct {
	Date   string `json:"date"`
	Commit string `json:"commit,omitempty"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

func thisMachine() machine {
	m := machine{Date: time.Now().UTC().Format(time.RFC3339), Commit: os.Getenv("REFIT_BENCH_COMMIT"), Cores: runtime.NumCPU(), Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if b, ok := debug.ReadBuildInfo(); ok && m.Commit == "" {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				m.Commit = s.Value
			}
		}
	}
	return m
}

// load is what else the machine does, as the kernel averages it over a minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

func resultsDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(resultsVar)
	if dir == "" {
		t.Skip("takes minutes and the whole machine: run `make bench-site`")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	return dir
}

func keep(t *testing.T, name string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	if err := os.WriteFile(filepath.Join(resultsDir(t), name), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
