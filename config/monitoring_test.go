package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/config"
)

// alertCases has the inputs and the expected alerts, for promtool.
const alertCases = "testdata/alerts.yaml"

// needsPromtool skips a test on a machine without Prometheus (Debian package prometheus).
func needsPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool: make deps installs it")
	}
	return path
}

// ruleFiles writes the rules as Prometheus reads them without its operator.
func ruleFiles(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	objects, err := config.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(o.GetName(), "refit-") + ".yaml"
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return dir, names
}

// alerts are all rules.
func alerts(t *testing.T) []map[string]any {
	t.Helper()
	objects, err := config.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for _, o := range objects {
		groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "groups")
		for _, g := range groups {
			rules, _, _ := unstructured.NestedSlice(g.(map[string]any), "rules")
			for _, r := range rules {
				out = append(out, r.(map[string]any))
			}
		}
	}
	if len(out) < 20 {
		t.Fatalf("%d alerts", len(out))
	}
	return out
}

// TestAlertCases has promtool check the rules and run the cases.
func TestAlertCases(t *testing.T) {
	t.Parallel()
	promtool := needsPromtool(t)
	dir, names := ruleFiles(t)
	if out, err := exec.Command(promtool, append([]string{"check", "rules", "--lint-fatal"}, inDir(dir, names)...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cases, err := os.ReadFile(alertCases)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := runCases(promtool, dir, cases); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// A rule with another limit is noticed: the cases run.
	some := casesOf(t, cases, "RefitDiskTooSmall")
	broken := bytes.Replace(some, []byte("refit_nodes_low_disk', values: '4x40'"), []byte("refit_nodes_low_disk', values: '0x40'"), 1)
	if bytes.Equal(broken, some) {
		t.Fatal("the case to break is not there")
	}
	out, err := runCases(promtool, dir, broken)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "RefitDiskTooSmall") {
		t.Errorf("a wrong case passes: %v\n%s", err, out)
	}
}

// casesOf returns the cases of one alert: promtool starts a database for each case.
func casesOf(t *testing.T, cases []byte, alert string) []byte {
	t.Helper()
	begin := []byte("\n- name: ")
	all := bytes.Split(cases, begin)
	some := all[:1]
	for _, c := range all[1:] {
		if bytes.HasPrefix(c, []byte(alert+" ")) {
			some = append(some, c)
		}
	}
	if len(some) < 3 {
		t.Fatalf("%d cases of %s", len(some)-1, alert)
	}
	return bytes.Join(some, begin)
}

func runCases(promtool, dir string, cases []byte) ([]byte, error) {
	file := filepath.Join(dir, "cases.yaml")
	if err := os.WriteFile(file, cases, 0o600); err != nil {
		return nil, err
	}
	return exec.Command(promtool, "test", "rules", file).CombinedOutput()
}

func inDir(dir string, names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, filepath.Join(dir, n))
	}
	return out
}

// TestEveryAlertHasCases: an alert has a case that fires and one that does not, and every
// annotation.
func TestEveryAlertHasCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(alertCases)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Rules []struct {
				Alert string `json:"alertname"`
				Want  []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, c := range file.Tests {
		for _, r := range c.Rules {
			if len(r.Want) > 0 {
				fires[r.Alert] = true
			} else {
				quiet[r.Alert] = true
			}
		}
	}
	page, err := os.ReadFile("../docs/reference/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range alerts(t) {
		name, _ := r["alert"].(string)
		if !fires[name] || !quiet[name] {
			t.Errorf("%s: %s has a case that fires: %v, one that does not: %v", name, alertCases, fires[name], quiet[name])
		}
		for _, a := range []string{"summary", "description", "fix", "runbook_url"} {
			if text, _, _ := unstructured.NestedString(r, "annotations", a); text == "" {
				t.Errorf("%s has no %s", name, a)
			}
		}
		if url, _, _ := unstructured.NestedString(r, "annotations", "runbook_url"); url != runbooks+strings.ToLower(name) || !strings.Contains(string(page), "\n## "+name+"\n") {
			t.Errorf("%s: %s leads to no section", name, url)
		}
		if s, _, _ := unstructured.NestedString(r, "labels", "severity"); !slices.Contains([]string{"critical", "warning", "info"}, s) {
			t.Errorf("%s has the severity %q", name, s)
		}
	}
}

const runbooks = "https://github.com/refit-dev/refit/blob/main/docs/reference/alerts.md#"

// TestDashboard: every panel is complete, and no two share an id or a place.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := config.Dashboard()
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID string
		Panels     []struct {
			ID          int
			Title, Type string
			Description string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) < 10 {
		t.Fatalf("%q %q, %d panels", board.Title, board.UID, len(board.Panels))
	}
	seen := map[any]string{}
	for _, p := range board.Panels {
		if p.Title == "" || p.Description == "" || p.Type == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q is not complete: %+v", p.ID, p.Title, p)
		}
		for _, key := range []any{p.ID, [2]int{p.GridPos.X, p.GridPos.Y}} {
			if other := seen[key]; other != "" {
				t.Errorf("panels %q and %q share %v", other, p.Title, key)
			}
			seen[key] = p.Title
		}
	}
}

// TestMonitoringText: what the command line prints has every object of the two lists, and applies
// as it is.
func TestMonitoringText(t *testing.T) {
	t.Parallel()
	text, err := config.MonitoringText()
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := config.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	monitor, err := config.Monitoring()
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for _, o := range slices.Concat(alerts, monitor) {
		want = append(want, asYAML(t, o))
	}
	for _, doc := range regexp.MustCompile(`(?m)^---\n`).Split(string(text), -1) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		have = append(have, asYAML(t, o))
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		t.Errorf("%d objects, want %d", len(have), len(want))
	}
}
