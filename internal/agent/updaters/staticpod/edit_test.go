package staticpod

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	older   = "r.example/proxy:2.6.2-rev1"
	newer   = "r.example/proxy:2.6.2-rev1-b5.2@" + digestB
)

// Of a manifest nothing but the image changes, byte for byte, however it is
// written.
func TestOnlyTheImageChanges(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"as people write it":            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: proxy\nspec:\n  containers:\n  - name: app   # the one\n    image: IMAGE # do not touch\n    args: [\"--image=" + older + "\"]\n",
		"in quotes":                     "kind: Pod\nmetadata: {name: proxy}\nspec:\n  containers:\n  - image: \"IMAGE\"\n    name: 'app'\n",
		"in single quotes, with others": "kind: Pod\nspec:\n  initContainers:\n  - {name: wait, image: " + older + "}\n  containers:\n  - {name: side, image: " + older + "}\n  - {name: app, image: 'IMAGE'}\n",
		"in JSON":                       `{"kind":"Pod","spec":{"containers":[{"image":"IMAGE","name":"app"}],"hostNetwork":true}}`,
		"with carriage returns":         "kind: Pod\r\nspec:\r\n  containers:\r\n  - name: app\r\n    image: IMAGE\r\n",
		"after letters of two bytes":    "kind: Pod\nmetadata:\n  annotations: {über: 'Größe'}\nspec: {containers: [{env: [{name: A, value: 'ä'}], name: app, image: IMAGE}]} # ö\n",
		"without an end of line":        "kind: Pod\nspec:\n    containers:\n        - name: app\n          image: IMAGE",
		"with a document's mark":        "---\nkind: Pod\nspec:\n  containers:\n  - name: app\n    image: IMAGE\n...\n",
		"a block":                       "kind: Pod\nspec:\n  containers:\n  - name: app\n    image: >-\n      IMAGE\n",
		"an anchor without an alias":    "kind: Pod\nspec:\n  containers:\n  - name: app\n    image: &only IMAGE\n",
		"an init container":             "kind: Pod\nspec:\n  initContainers:\n  - name: app\n    image: IMAGE\n  containers:\n  - name: x\n    image: " + older + "\n",
	} {
		before := strings.Replace(text, "IMAGE", older, 1)
		got, err := replaceImages([]byte(before), map[string]string{"app": newer})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(strings.Replace(text, "IMAGE", newer, 1), string(got)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		back, err := replaceImages(got, map[string]string{"app": older})
		if err != nil || string(back) != before {
			t.Errorf("%s: the way back gives %q, %v", name, back, err)
		}
	}
}

// What cannot be changed without a doubt is not changed.
func TestWhatIsNotEdited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, says string }{
		"no YAML":                       {"{", "cannot be read"},
		"two documents":                 {"kind: Pod\nspec: {containers: [{name: app, image: x}]}\n---\nkind: Pod\n", "more than one document"},
		"no such container":             {"kind: Pod\nspec: {containers: [{name: other, image: x}]}\n", "no container app"},
		"no spec":                       {"kind: Pod\n", "no spec"},
		"an image behind an alias":      {"kind: Pod\nmetadata: {annotations: {a: &i x}}\nspec: {containers: [{name: app, image: *i}]}\n", "write it plainly"},
		"an image that others refer to": {"kind: Pod\nspec: {containers: [{name: app, image: &i x}, {name: b, image: *i}]}\n", "write it plainly"},
		"containers behind an alias":    {"kind: Pod\nx: &c [{name: app, image: x}]\nspec: {containers: *c}\n", "write it plainly"},
		"an image that is a number":     {"kind: Pod\nspec: {containers: [{name: app, image: 1}]}\n", "is not text"},
		"an escape":                     {"kind: Pod\nspec: {containers: [{name: app, image: \"\\x72.example/app\"}]}\n", "write it plainly"},
		"a key that is there twice":     {"kind: Pod\nspec: {containers: [{name: app, image: x, image: x}]}\n", ""},
		"two containers of one name":    {"kind: Pod\nspec: {hostNetwork: true, hostNetwork: true, containers: [{name: app, image: x}]}\n", ""},
	} {
		got, err := replaceImages([]byte(c.text), map[string]string{"app": newer})
		if err == nil || got != nil && c.says == "" && bytes.Equal(got, []byte(c.text)) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// For any names, values and order: only the image changes its meaning, and the reverse
// edit gives the same bytes.
func TestEditProperty(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[a-zA-Z0-9 ä:#'"{}&*!|>%@-]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		pod := map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "p", "annotations": map[string]any{"a": text.Draw(t, "annotation")}},
			"spec": map[string]any{"containers": []any{
				map[string]any{"name": "first", "image": text.Draw(t, "image"), "args": []any{text.Draw(t, "argument")}},
				map[string]any{"name": "app", "image": older, "command": []any{text.Draw(t, "command")}},
			}}}
		raw, err := sigsyaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		got, err := replaceImages(raw, map[string]string{"app": newer})
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		if len(got)-len(raw) != len(newer)-len(older) {
			t.Fatalf("more than the image changed:\n%s\n%s", raw, got)
		}
		back, err := replaceImages(got, map[string]string{"app": older})
		if err != nil || !bytes.Equal(back, raw) {
			t.Fatalf("%v\n%s\n%s", err, raw, back)
		}
	})
}
