package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/refit-dev/refit/test/results"
)

// resultsVar names the directory for results. Without it the long measurements are
// not made: they want the machine for themselves.
const resultsVar = "REFIT_BENCH_RESULTS"

// machine is where something was measured.
type machine struct {
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
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

// writeResult writes what was measured to the results, if the test passes.
func writeResult(t *testing.T, name string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	results.Keep(t, filepath.Join(resultsDir(t), name), func() any { return v })
}
