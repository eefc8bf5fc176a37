package installcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/inputs"
)

// Each format is what its program reads; another one is refused.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	print := func(format string) (string, error) {
		var out bytes.Buffer
		c := NewMonitoring(&inputs.Access{Out: &out})
		c.SetArgs([]string{"--format", format})
		c.SilenceUsage, c.SilenceErrors = true, true
		err := c.Execute()
		return out.String(), err
	}
	operator, err := print("operator")
	if err != nil || strings.Count(operator, "\nkind: PrometheusRule\n") != 2 || strings.Count(operator, "\nkind: ServiceMonitor\n") != 1 {
		t.Errorf("%v\n%s", err, operator)
	}
	board, err := print("dashboard")
	if err != nil || !json.Valid([]byte(board)) {
		t.Errorf("no JSON: %v", err)
	}
	if _, err := print("grafana"); err == nil || !strings.Contains(err.Error(), "use operator, rules or dashboard") {
		t.Errorf("another format: %v", err)
	}
	rules, err := print("rules")
	if err != nil {
		t.Fatal(err)
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool: make deps installs it")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil || !strings.Contains(string(out), "20 rules found") {
		t.Errorf("%v\n%s", err, out)
	}
}
