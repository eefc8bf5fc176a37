package capidiff_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func paths(o capidiff.Object) []string {
	out := []string{}
	for _, c := range capidiff.Differences(o) {
		out = append(out, c.Path)
	}
	return out
}

// The differences of an object, named one by one.
func TestDifferencesAreNamed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		role             string
		spec             []string
		current, desired string
		want             []string
	}{
		"the version of a machine": {capidiff.Machine, capidiff.SpecOfMachine,
			`{"spec":{"version":"v1.35.4","clusterName":"a"}}`, `{"spec":{"version":"v1.36.3","clusterName":"a"}}`, []string{"machine/spec/version"}},
		"what Cluster API does not compare on a machine is no difference": {capidiff.Machine, capidiff.SpecOfMachine,
			`{"spec":{"version":"v1","minReadySeconds":1,"providerID":"x"}}`, `{"spec":{"version":"v1","minReadySeconds":2,"taints":[]}}`, []string{}},
		"labels and annotations are none either": {capidiff.Machine, capidiff.SpecOfMachine,
			`{"metadata":{"labels":{"a":"1"}},"spec":{}}`, `{"metadata":{"labels":{"a":"2"}},"spec":{}}`, []string{}},
		"the failure domain of a set's template": {capidiff.Machine, capidiff.SpecOfTemplate,
			`{"spec":{"template":{"spec":{"failureDomain":"a"}}}}`, `{"spec":{"template":{"spec":{}}}}`, []string{"machine/spec/failureDomain"}},
		"a file that is added to a list is one field": {capidiff.Bootstrap, capidiff.SpecOfMachine,
			`{"spec":{"files":[{"path":"/a","content":"x"}]}}`, `{"spec":{"files":[{"path":"/b","content":"y"},{"path":"/a","content":"x"}]}}`, []string{"bootstrap/spec/files[~1b]"}},
		"the first file of a list is one field": {capidiff.Bootstrap, capidiff.SpecOfMachine,
			`{"spec":{}}`, `{"spec":{"files":[{"path":"/b"}]}}`, []string{"bootstrap/spec/files[~1b]"}},
		"a file that changes, one that goes and one that comes": {capidiff.Bootstrap, capidiff.SpecOfMachine,
			`{"spec":{"files":[{"path":"/a","content":"x"},{"path":"/b"}]}}`, `{"spec":{"files":[{"path":"/a","content":"z"},{"path":"/c"}]}}`,
			[]string{"bootstrap/spec/files[~1a]", "bootstrap/spec/files[~1b]", "bootstrap/spec/files[~1c]"}},
		"users are named too": {capidiff.Bootstrap, capidiff.SpecOfTemplate,
			`{"spec":{"template":{"spec":{"users":[{"name":"core"}]}}}}`, `{"spec":{"template":{"spec":{"users":[{"name":"core","shell":"/bin/sh"}]}}}}`, []string{"bootstrap/spec/users[core]"}},
		"another order of the same files is a difference of the list": {capidiff.Bootstrap, capidiff.SpecOfMachine,
			`{"spec":{"files":[{"path":"/a"},{"path":"/b"}]}}`, `{"spec":{"files":[{"path":"/b"},{"path":"/a"}]}}`, []string{"bootstrap/spec/files"}},
		"commands have no name and change as a whole": {capidiff.Bootstrap, capidiff.SpecOfMachine,
			`{"spec":{"preKubeadmCommands":["a"]}}`, `{"spec":{"preKubeadmCommands":["a","b"]}}`, []string{"bootstrap/spec/preKubeadmCommands"}},
		"two files of one path change as a whole": {capidiff.Bootstrap, capidiff.SpecOfMachine,
			`{"spec":{"files":[{"path":"/a"}]}}`, `{"spec":{"files":[{"path":"/a"},{"path":"/a"}]}}`, []string{"bootstrap/spec/files"}},
		"nested fields of the provider's machine": {capidiff.Infrastructure, capidiff.SpecOfMachine,
			`{"spec":{"vm":{"memory":4,"cpus":2}}}`, `{"spec":{"vm":{"memory":8,"cpus":2},"image":"x"}}`, []string{"infrastructure/spec/image", "infrastructure/spec/vm/memory"}},
		"null is not the same as nothing": {capidiff.Infrastructure, capidiff.SpecOfMachine, `{"spec":{"a":null}}`, `{"spec":{}}`, []string{"infrastructure/spec/a"}},
		"a spec that appears":             {capidiff.Infrastructure, capidiff.SpecOfMachine, `{}`, `{"spec":{"a":1}}`, []string{"infrastructure/spec/a"}},
		"an empty object that appears":    {capidiff.Infrastructure, capidiff.SpecOfMachine, `{"spec":{}}`, `{"spec":{"a":{}}}`, []string{"infrastructure/spec/a"}},
		"an object that goes":             {capidiff.Bootstrap, capidiff.SpecOfMachine, `{"spec":{"clusterConfiguration":{"featureGates":{"X":true}},"b":1}}`, `{"spec":{"b":1}}`, []string{"bootstrap/spec/clusterConfiguration/featureGates/X"}},
		"a key with a slash":              {capidiff.Infrastructure, capidiff.SpecOfMachine, `{"spec":{"tags":{"a/b":"1"}}}`, `{"spec":{"tags":{"a/b":"2"}}}`, []string{"infrastructure/spec/tags/a~1b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := capidiff.Object{Role: tc.role, Spec: tc.spec, Current: decode(t, tc.current), Desired: decode(t, tc.desired)}
			if diff := cmp.Diff(tc.want, paths(o)); diff != "" {
				t.Error("differences (-want +got):", diff)
			}
		})
	}
}

// The report of a difference never contains the value: the objects carry secrets.
func TestADifferenceShowsNoValue(t *testing.T) {
	t.Parallel()
	o := capidiff.Object{Role: capidiff.Bootstrap, Spec: capidiff.SpecOfMachine,
		Current: decode(t, `{"spec":{"files":[{"path":"/a","content":"hunter1"}],"joinConfiguration":{"token":"abc"}}}`),
		Desired: decode(t, `{"spec":{"files":[{"path":"/a","content":"hunter2"}],"joinConfiguration":{"token":"def"}}}`)}
	text := fmt.Sprint(capidiff.Differences(o))
	for _, secret := range []string{"hunter", "abc", "def"} {
		if strings.Contains(strings.ReplaceAll(text, "sha256:", ""), secret) && !isHex(secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}
	m := capidiff.Object{Role: capidiff.Machine, Spec: capidiff.SpecOfMachine, Current: decode(t, `{"spec":{"version":"v1.35.4"}}`), Desired: decode(t, `{"spec":{"version":"v1.36.3"}}`)}
	if c := capidiff.Differences(m)[0]; c.From != "v1.35.4" || c.To != "v1.36.3" {
		t.Errorf("want both versions in the difference: %+v", c)
	}
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func TestAClaimMovesWhatItClaims(t *testing.T) {
	t.Parallel()
	o := capidiff.Object{Role: capidiff.Bootstrap, Spec: capidiff.SpecOfTemplate,
		Current: decode(t, `{"kind":"K","spec":{"template":{"metadata":{"x":1},"spec":{"files":[{"path":"/a","content":"1"},{"path":"/gone"}],"verbosity":1}}}}`),
		Desired: decode(t, `{"kind":"K","spec":{"template":{"metadata":{"x":2},"spec":{"files":[{"path":"/new"},{"path":"/a","content":"2"}],"verbosity":2}}}}`)}
	after := capidiff.Move(o, map[string]bool{"bootstrap/spec/files[~1a]": true, "bootstrap/spec/files[~1gone]": true})
	want := decode(t, `{"kind":"K","spec":{"template":{"metadata":{"x":1},"spec":{"files":[{"path":"/a","content":"2"}],"verbosity":1}}}}`)
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error("after the claim (-want +got):", diff)
	}
	patch, changed := capidiff.Patch(o.Current, after)
	if want := `[{"op":"replace","path":"/spec/template/spec/files","value":[{"content":"2","path":"/a"}]}]`; !changed || string(patch) != want {
		t.Errorf("patch %s, want %s", patch, want)
	}
	if _, changed := capidiff.Patch(o.Current, capidiff.Move(o, nil)); changed {
		t.Error("nothing claimed is no patch: callers refuse an empty one")
	}
}

func TestVersionsThatMove(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ from, to, want string }{
		"one minor":                 {"v1.35.4", "v1.36.3", ""},
		"a patch":                   {"v1.35.4", "v1.35.9", ""},
		"two minors":                {"v1.34.0", "v1.36.3", "skips a minor version"},
		"an older minor":            {"v1.36.3", "v1.35.4", "older than"},
		"an older patch":            {"v1.36.3", "v1.36.1", "older than"},
		"another major":             {"v1.36.3", "v2.0.0", "major"},
		"a build of k3s":            {"v1.35.4+k3s1", "v1.35.4+k3s2", ""},
		"an older build of k3s":     {"v1.35.4+k3s2", "v1.35.4+k3s1", "older than"},
		"RKE2, one minor":           {"v1.35.4+rke2r1", "v1.36.3+rke2r1", ""},
		"RKE2, two minors":          {"v1.34.4+rke2r1", "v1.36.3+rke2r1", "skips a minor version"},
		"a build of k0s":            {"v1.36.3+k0s.0", "v1.36.3+k0s.1", ""},
		"a hybrid node of EKS":      {"v1.35.4-eks-a1b2c3d", "v1.36.3-eks-a1b2c3d", "does not update"},
		"to another distribution":   {"v1.35.4", "v1.35.4+rke2r1", "another distribution, RKE2"},
		"a vendor's build":          {"v1.35.4+vendor1", "v1.35.4+vendor2", ""},
		"a first version":           {"", "v1.36.3", "names no version"},
		"no version any more":       {"v1.36.3", "", "no version is wanted"},
		"something else":            {"latest", "v1.36.3", `"latest" is no version`},
		"from something to nothing": {"v1.36.3", "edge", `"edge" is no version`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := capidiff.VersionMove(tc.from, tc.to)
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s to %s: %q, want %q", tc.from, tc.to, got, tc.want)
			}
		})
	}
}

// Property: any claim moves exactly what it names, and its patch does the same
// to the object as the caller of the hook applies it.
func TestClaimsArePatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		spec := rapid.SampledFrom([][]string{capidiff.SpecOfMachine, capidiff.SpecOfTemplate}).Draw(rt, "spec")
		role := rapid.SampledFrom([]string{capidiff.Machine, capidiff.Bootstrap, capidiff.Infrastructure}).Draw(rt, "role")
		o := capidiff.Object{Role: role, Spec: spec, Current: wrap(spec, drawMap(rt, "current", 3)), Desired: wrap(spec, drawMap(rt, "desired", 3))}
		ds := capidiff.Differences(o)
		claimed, left := map[string]bool{}, []string{}
		for _, d := range ds {
			if claimed[d.Path] {
				rt.Fatalf("%s is named twice", d.Path)
			}
			if rapid.Bool().Draw(rt, d.Path) {
				claimed[d.Path] = true
			} else {
				left = append(left, d.Path)
			}
		}
		after := capidiff.Move(o, claimed)
		moved := o
		moved.Current = after
		if len(left) == 0 && len(paths(moved)) > 0 {
			rt.Fatalf("everything is claimed and %v is left", paths(moved))
		}
		for _, p := range paths(moved) {
			if claimed[p] {
				rt.Fatalf("%s was claimed and still differs", p)
			}
		}
		if len(claimed) == 0 && !reflect.DeepEqual(after, o.Current) {
			rt.Fatalf("nothing was claimed, and the object changed: %v", after)
		}
		patch, changed := capidiff.Patch(o.Current, after)
		if !changed {
			if !reflect.DeepEqual(after, o.Current) {
				rt.Fatalf("no patch for a change")
			}
			return
		}
		doc, err := json.Marshal(o.Current)
		if err != nil {
			rt.Fatal(err)
		}
		p, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			rt.Fatalf("%s: %v", patch, err)
		}
		got, err := p.Apply(doc)
		if err != nil {
			rt.Fatalf("%s on %s: %v", patch, doc, err)
		}
		want, _ := json.Marshal(after)
		if !jsonpatch.Equal(got, want) {
			rt.Fatalf("%s on %s gives %s, want %s", patch, doc, got, want)
		}
	})
}

func wrap(spec []string, m map[string]any) map[string]any {
	for i := len(spec) - 1; i >= 0; i-- {
		m = map[string]any{spec[i]: m}
	}
	m["kind"] = "K"
	return m
}

func drawMap(rt *rapid.T, label string, depth int) map[string]any {
	m := map[string]any{}
	for _, k := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"version", "failureDomain", "files", "a/b", "~", "vm"}), func(s string) string { return s }).Draw(rt, label) {
		m[k] = drawValue(rt, label+k, depth)
	}
	return m
}

func drawValue(rt *rapid.T, label string, depth int) any {
	kind := rapid.IntRange(0, 5).Draw(rt, label)
	switch {
	case kind == 0 && depth > 0:
		return drawMap(rt, label, depth-1)
	case kind == 1:
		// A decoded empty list is never nil.
		files := []any{}
		for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"/a", "/b", "/c"}), func(s string) string { return s }).Draw(rt, label+"files") {
			files = append(files, map[string]any{"path": p, "content": rapid.SampledFrom([]string{"1", "2"}).Draw(rt, label+p)})
		}
		return files
	case kind == 2:
		return []any{rapid.SampledFrom([]string{"x", "y"}).Draw(rt, label+"item")}
	case kind == 3:
		return nil
	}
	return rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, label+"scalar")
}
