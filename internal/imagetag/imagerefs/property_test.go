package imagerefs

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// planted is an object with containers at random places, and their images by path.
type planted struct {
	t      *rapid.T
	images map[string]string
}

// value draws a value below a path; text in it never resembles a reference.
func (p *planted) value(path string, depth int) any {
	kinds := []string{"text", "number", "map", "list", "containers"}
	if depth == 0 {
		kinds = kinds[:2]
	}
	switch rapid.SampledFrom(kinds).Draw(p.t, "kind") {
	case "text":
		return rapid.StringMatching(`[a-z]{0,8}( [a-z]{1,5})?`).Draw(p.t, "text")
	case "number":
		return rapid.Int().Draw(p.t, "number")
	case "list":
		out := []any{}
		for i := range rapid.IntRange(0, 3).Draw(p.t, "length") {
			out = append(out, p.value(fmt.Sprintf("%s[%d]", path, i), depth-1))
		}
		return out
	case "containers":
		list := rapid.SampledFrom(containerLists).Draw(p.t, "list")
		var out []any
		for i := range rapid.IntRange(1, 3).Draw(p.t, "containers") {
			image := fmt.Sprintf("r.example/i%d:%d", len(p.images), i)
			p.images[fmt.Sprintf("%s[%d].image", join(path, list), i)] = image
			out = append(out, map[string]any{"name": "c", "image": image})
		}
		return map[string]any{list: out}
	}
	out := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(p.t, "fields") {
		key := rapid.StringMatching(`[a-z]{1,6}[./]?[a-z]{0,3}`).Draw(p.t, "key")
		if _, have := out[key]; !have && key != "kind" && key != "volumes" {
			out[key] = p.value(join(path, key), depth-1)
		}
	}
	return out
}

// Every planted image is found at its place, once, and nothing else is.
func TestEveryImageIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &planted{t: t, images: map[string]string{}}
		spec := p.value("spec", rapid.IntRange(1, 6).Draw(t, "depth"))
		data, err := json.Marshal(map[string]any{"apiVersion": "x.example/v1", "kind": "Thing", "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		refs, err := Find("f.json", data)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range refs {
			if r.Maybe || r.Rule != RuleContainer {
				t.Fatalf("invented: %+v\n%s", r, data)
			}
			if _, twice := got[r.Path]; twice {
				t.Fatalf("twice: %+v\n%s", r, data)
			}
			got[r.Path] = r.Image
		}
		for path, image := range p.images {
			if got[path] != image {
				t.Fatalf("%s: %q, want %s\n%s", path, got[path], image, data)
			}
		}
		if len(got) != len(p.images) {
			t.Fatalf("%d found, want %d\n%s", len(got), len(p.images), data)
		}
	})
}

// FuzzFind: any input ends in references that are complete, or in an error.
func FuzzFind(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{image: a.example/b:1, args: [--x-image, c/d:1], env: [{name: IMAGES, value: 'a=b/c:1'}]}]}"))
	f.Add([]byte("apiVersion: v1\nkind: ConfigMap\ndata: {a: \"apiVersion: v1\\nkind: List\\nitems: []\", b: 'image: x/y:1'}"))
	f.Add([]byte("kind: List\nitems: &a [{<<: *a}, *a]"))
	f.Add([]byte("apiVersion: tekton.dev/v1\nkind: Task\nspec: {steps: [{image: a}], x: {image: {repository: a, tag: 1, digest: b}}}"))
	rules := []string{RuleContainer, RuleImageVolume, RuleField, RuleAnnotation, RuleArgument, RuleVariable, RuleImageLike, RuleTextLike}
	f.Fuzz(func(t *testing.T, data []byte) {
		refs, err := Find("f", data)
		if err != nil && refs != nil {
			t.Errorf("references and an error: %v", err)
		}
		for _, r := range refs {
			if r.Image == "" || r.Path == "" || r.Kind == "" || r.Line < 1 || !slices.Contains(rules, r.Rule) || r.Maybe != (r.Rule == RuleImageLike || r.Rule == RuleTextLike) {
				t.Errorf("%+v", r)
			}
		}
	})
}
