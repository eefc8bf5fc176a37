package tagscmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

const agent = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  template:
    spec:
      containers:
      - name: agent
        image: other.example/agent:latest
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLintNamesFileAndLine(t *testing.T) {
	t.Parallel()
	file := write(t, "agent.yaml", agent)
	r := refit(t, "", "tags", "lint", filepath.Dir(file))
	if r.code != 3 {
		t.Errorf("exit code %d, want 3 for errors", r.code)
	}
	for _, want := range []string{"2 errors", file + ":9: error T01: ", file + ":9: error T02: ", "Fix:"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	if first, _, _ := strings.Cut(r.out, "\n"); !strings.HasPrefix(first, "2 errors, 1 info in 1 object") {
		t.Errorf("the first line is the verdict: %q", first)
	}
}

func TestLintReadsStandardInputAndSpeaksJSON(t *testing.T) {
	t.Parallel()
	r := refit(t, agent, "tags", "lint", "-", "-o", "json", "--offline")
	var got lint.Report
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.APIVersion != "refit.dev/lint/v1" || got.Errors != 3 || r.code != 3 {
		t.Errorf("%v, exit code %d\n%s", err, r.code, r.out)
	}
}

func TestLintIsSwitchedOffWithAReason(t *testing.T) {
	t.Parallel()
	file := write(t, "agent.yaml", agent)
	conf := write(t, "c.yaml", "off:\n- {rule: T01, reason: watched}\n- {rule: T02, reason: registry is always there}\n")
	if r := refit(t, "", "tags", "lint", "--config", conf, file); r.code != 0 || !strings.Contains(r.out, "2 switched off") {
		t.Errorf("exit code %d\n%s", r.code, r.out)
	}
	if r := refit(t, "", "tags", "lint", "--config", write(t, "c.yaml", "off: [{rule: T01}]"), file); r.code != 2 || !strings.Contains(r.err, "without a reason") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

func TestLintStrict(t *testing.T) {
	t.Parallel()
	file := write(t, "web.yaml", strings.NewReplacer("kube-system", "shop", "latest", "latest\n        imagePullPolicy: IfNotPresent").Replace(agent))
	if r := refit(t, "", "tags", "lint", file); r.code != 0 {
		t.Errorf("a warning is no error: exit code %d\n%s", r.code, r.out)
	}
	if r := refit(t, "", "tags", "lint", "--strict", file); r.code != 3 {
		t.Errorf("--strict: exit code %d\n%s", r.code, r.out)
	}
}

func TestLintUsage(t *testing.T) {
	t.Parallel()
	for sentence, argv := range map[string][]string{
		"no path":                    {"tags", "lint"},
		"a path that is not there":   {"tags", "lint", "/nonexistent/x.yaml"},
		"a template that is no YAML": {"tags", "lint", write(t, "t.yaml", "a: {{ x }}\nb: [")},
		"a configuration not there":  {"tags", "lint", "--config", "/nonexistent", "-"},
		"an unknown output":          {"tags", "lint", "-o", "xml", "-"},
	} {
		if r := refit(t, "", argv...); r.code != 2 || r.err == "" {
			t.Errorf("%s: exit code %d, %q", sentence, r.code, r.err)
		}
	}
	if r := refit(t, "", "tags", "lint", "--rules"); r.code != 0 || strings.Count(r.out, "\nT") != 16 {
		t.Errorf("--rules: exit code %d\n%s", r.code, r.out)
	}
}

// The names and digests that a bundle brings are what the manifests may ask for.
func TestLintAgainstABundle(t *testing.T) {
	t.Parallel()
	b := write(t, "b", string(bundletest.Bytes(t, bundletest.Tiny())))
	pod := func(image string) string {
		return write(t, "a.yaml", "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: '"+image+"', imagePullPolicy: IfNotPresent}]}\n")
	}
	if r := refit(t, "", "tags", "lint", "--offline", "--bundle", b, pod("registry.example/app:1")); r.code != 0 {
		t.Errorf("an image of the bundle: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if r := refit(t, "", "tags", "lint", "--offline", "--bundle", b, pod("registry.example/app:2")); r.code != 3 || !strings.Contains(r.out, "error T06") {
		t.Errorf("another: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if r := refit(t, "", "tags", "lint", "--bundle", write(t, "b", "no bundle"), pod("a:1")); r.code != 6 {
		t.Errorf("a file that is no bundle: exit code %d: %s", r.code, r.err)
	}
}

// Of a cluster the facts are known that no manifest has: where an image is not.
func TestLintOfACluster(t *testing.T) {
	t.Parallel()
	dump := write(t, "dump.json", clusterDump()+`{"kind":"DaemonSet","metadata":{"namespace":"kube-system","name":"agent"},"spec":{"template":{"spec":{"containers":[{"name":"main","image":"reg.example/net/agent:latest","imagePullPolicy":"Always"}]}}}}`)
	r := refit(t, "", "tags", "lint", "--dump", dump, "--offline")
	if r.code != 3 || !strings.Contains(r.out, "DaemonSet/kube-system/agent: error T02: ") {
		t.Errorf("the cluster's objects: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	set := write(t, "set.yaml", "kind: DaemonSet\nmetadata: {name: s, namespace: shop}\nspec: {template: {spec: {containers: [{name: a, image: 'reg.example/shop/new:1', imagePullPolicy: IfNotPresent}]}}}\n")
	if r := refit(t, "", "tags", "lint", "--dump", dump, set); r.code != 0 || !strings.Contains(r.out, "warning T14: 2 nodes do not have this image (n1, n2)") {
		t.Errorf("manifests against a cluster: exit code %d\n%s%s", r.code, r.out, r.err)
	}
}
