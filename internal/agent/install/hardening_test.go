package install

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const hardeningPage = "../../../docs/reference/hardening.md"

// worst is the highest exposure that systemd-analyze may find, 0 best, 10 worst. Raise it
// only together with a reason in the page.
var worst = map[string]float64{Unit: 6.4, Preflight: 5.5, Import: 5.5}

// The units stay as closed as they are: systemd itself scores them.
func TestExposure(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	dir := t.TempDir()
	page, err := os.ReadFile(hardeningPage)
	if err != nil {
		t.Fatal(err)
	}
	for unit, text := range map[string]string{Unit: agentText("/bin/true"), Preflight: preflightText("/bin/true"), Import: importText("/bin/true")} {
		t.Run(unit, func(t *testing.T) {
			path := filepath.Join(dir, unit)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(tool, "verify", path).CombinedOutput()
			if regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(path)).Match(out) {
				t.Errorf("systemd does not understand the unit: %v\n%s", err, out)
			}
			out, err = exec.Command(tool, "security", "--offline=yes", "--no-pager", path).Output()
			if len(out) == 0 {
				t.Skipf("this systemd-analyze does not score files: %v", err)
			}
			m := regexp.MustCompile(`Overall exposure level for .*: ([0-9.]+)`).FindSubmatch(out)
			if m == nil {
				t.Fatalf("no score in %s", out)
			}
			score, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil {
				t.Fatal(err)
			}
			if score > worst[unit] {
				t.Errorf("exposure %.1f, want at most %.1f:\n%s", score, worst[unit], out)
			}
			if row := fmt.Sprintf("| `%s` | %.1f |", unit, worst[unit]); !strings.Contains(string(page), row) {
				t.Errorf("%s misses the row %s", hardeningPage, row)
			}
			openSettings(t, tool, path, string(page))
		})
	}
}

// openSettings wants a reason in the page for everything that systemd finds open.
func openSettings(t *testing.T, tool, path, page string) {
	t.Helper()
	out, err := exec.Command(tool, "security", "--offline=yes", "--json=short", path).Output()
	if err != nil && len(out) == 0 {
		t.Skipf("this systemd-analyze gives no JSON: %v", err)
	}
	var all []struct {
		Set  *bool  `json:"set"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		name, _, _ := strings.Cut(s.Name, "=")
		if name == "CapabilityBoundingSet" || name == "SystemCallFilter" || name == "RestrictAddressFamilies" || name == "RestrictNamespaces" {
			name = strings.TrimSuffix(s.Name, "_")
		}
		if s.Set != nil && !*s.Set && !strings.Contains(page, "`"+name) {
			t.Errorf("%s is open, and %s has no reason for it", s.Name, hardeningPage)
		}
	}
}

// Every setting has its row in the page.
func TestHardeningPage(t *testing.T) {
	page, err := os.ReadFile(hardeningPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(agentHardening(), checkHardening()...) {
		if !strings.Contains(string(page), "`"+s.line+"`") {
			t.Errorf("%s misses %s", hardeningPage, s.line)
		}
	}
}
