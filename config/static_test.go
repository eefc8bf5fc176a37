package config_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/config"
)

// TestKustomization checks that the base has the objects of the static YAML, all of them and
// no other, field by field.
func TestKustomization(t *testing.T) {
	want, err := config.Static("refit.dev/refit:latest")
	if err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var have, expect []string
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		have = append(have, sorted(t, text))
	}
	for _, o := range want {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		expect = append(expect, sorted(t, text))
	}
	slices.Sort(have)
	slices.Sort(expect)
	for _, o := range expect {
		if i, found := slices.BinarySearch(have, o); found {
			have = slices.Delete(have, i, i+1)
		} else {
			t.Errorf("the base has not, or has otherwise:\n%.300s", o)
		}
	}
	if len(have) > 0 {
		t.Errorf("the base has more:\n%.2000s", strings.Join(have, "---\n"))
	}
}

// sorted is the same YAML with its keys in order.
func sorted(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
