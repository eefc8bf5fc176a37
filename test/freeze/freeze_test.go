package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree writes a small tree and returns where it is.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.ToSlash(dir)
}

var sample = map[string]string{
	"internal/cli/exit/exit.go": "package exit\n\nconst (\n\tOK = 0\n\tBlocked = 3 // a person must act\n)\n",
	"internal/x/metrics.go": `package x

import "github.com/prometheus/client_golang/prometheus"

func metrics() {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: name, Help: help}, labels)
	}
	_ = gauge("nodes", "Nodes.", "phase")
	_ = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refit_asked_total", Help: "Questions."}, []string{"hook", "outcome"})
}
`,
	"internal/x/view.go": `package x

type view struct {
	APIVersion string ` + "`json:\"apiVersion\"`" + `
	Kind       string ` + "`json:\"kind\"`" + `
	Nodes      []node ` + "`json:\"nodes\"`" + `
}

type node struct {
	Held bool ` + "`json:\"held,omitempty\"`" + `
}

func answer() view { return view{APIVersion: "refit.dev/x/v1", Kind: "X"} }
`,
	"api/v1alpha1/reasons.go": "package v1alpha1\n\nconst ReasonPaused = \"Paused\"\n",
	"config/crd/x.yaml": `spec:
  names: {kind: X}
  versions:
  - name: v1alpha1
    schema:
      openAPIV3Schema:
        properties:
          spec:
            description: words
            required: [at]
            properties:
              at: {type: string, description: a time}
`,
}

func TestFacts(t *testing.T) {
	t.Parallel()
	root := tree(t, sample)
	for _, part := range parts {
		want := map[string][]string{
			"exit codes": {"0 OK", "3 Blocked"},
			"metrics":    {"refit_nodes phase", "refit_asked_total hook outcome"},
			"JSON":       {"X refit.dev/x/v1 nodes list of object", "X refit.dev/x/v1 nodes[].held boolean"},
			"CRDs":       {"X.name = v1alpha1", "X.names.kind = X", "X.spec.at.required = true", "X.spec.at.type = string"},
			"API words":  {"word: Paused"},
		}[part.name]
		got, err := part.read(root)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", part.name, got, err)
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "renames.txt")
	if err := os.WriteFile(list, []byte("# why\n\nnodes[].held -> nodes[].onHold\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := readRenames(list)
	if err != nil {
		t.Fatal(err)
	}
	before := names.apply([]string{"nodes[].held boolean", "nodes[].heldSince string", "same"})
	got := differences(before, []string{"nodes[].onHold boolean", "same", "more"})
	if want := []string{"+ more", "- nodes[].heldSince string"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(list, []byte("held onHold\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRenames(list); err == nil {
		t.Error("a line without an arrow is taken")
	}
}
