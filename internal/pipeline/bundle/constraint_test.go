package bundle_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func TestParseConstraints(t *testing.T) {
	t.Parallel()
	got, err := bundle.ParseConstraints([]string{"kubernetes>=v1.35.2", "containerd>=1.7", "kubernetes <= 1.36.9"})
	want := []bundle.Constraint{{Name: "kubernetes", Min: "v1.35.2", Max: "1.36.9"}, {Name: "containerd", Min: "1.7.0"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, bad := range []string{"kubernetes", "kubernetes=1.35.0", "kernel>=6.1.0", "kubernetes>=new", "kubernetes>=", ">=1.0.0"} {
		if _, err := bundle.ParseConstraints([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := bundle.ParseConstraints([]string{"kubernetes>=1.35.0", "kubernetes>=1.36.0"}); err == nil {
		t.Error("two lower bounds were accepted")
	}
}

// Constraints are under the digest, and come back from the header as written.
func TestConstraintsInTheHeader(t *testing.T) {
	t.Parallel()
	p := bundletest.Make(t, bundletest.Tiny())
	p.Meta.Constraints = []bundle.Constraint{{Name: "containerd", Min: "1.7.3"}, {Name: "kubernetes", Min: "v1.35.2", Max: "v1.36.9"}}
	h, err := bundle.ParseHeader(p.Header(t))
	if err != nil || !reflect.DeepEqual(h.Metadata.Constraints, p.Meta.Constraints) {
		t.Fatalf("%v", err)
	}
	for name, bad := range map[string][]bundle.Constraint{
		"bad constraint name":    {{Name: "a\nb", Min: "1.0.0"}},
		"not in order":           {{Name: "kubernetes", Min: "1.0.0"}, {Name: "containerd", Min: "1.0.0"}},
		"no bound":               {{Name: "kubernetes"}},
		"not a semantic version": {{Name: "kubernetes", Min: "\x1b[2J"}},
		"constraints":            make([]bundle.Constraint, 17),
	} {
		p.Meta.Constraints = bad
		raw, err := bundle.Marshal(&p.Meta, p.Table)
		if err == nil {
			_, err = bundle.ParseHeader(raw)
			var corrupt *bundle.CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), name) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
