package story

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"
)

// archiveTime is when the support archives of stories were made.
const archiveTime = "2026-11-22T13:40:00Z"

// installed are kinds that a site has, also without objects.
var installed = map[string]string{
	"Bundle": "refit.dev/v1alpha1", "ClusterUpdate": "refit.dev/v1alpha1", "PinnedImageSet": "refit.dev/v1alpha1", "TrustPolicy": "refit.dev/v1alpha1",
	"NodeConfig": "refit.dev/v1alpha1", "Updater": "refit.dev/v1alpha1", "Content": "refit.dev/v1alpha1", "Pod": "v1", "PodDisruptionBudget": "policy/v1",
}

// archive packs objects into a support archive: archive ARCHIVE FILE... An object of a later file
// changes the fields that it names of the object before it.
func archive(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: archive ARCHIVE FILE...")
	}
	objects := map[string]map[string]any{} // by kind and name
	for _, file := range args[1:] {
		for doc := range strings.SplitSeq(ts.ReadFile(file), "\n---\n") {
			o := map[string]any{}
			ts.Check(yaml.UnmarshalStrict([]byte(doc), &o))
			key := nameOf(o)
			objects[key] = merge(objects[key], o)
		}
	}
	lists := map[string][]any{}
	kinds := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		kind := objects[key]["kind"].(string)
		lists[kind] = append(lists[kind], objects[key])
		kinds[kind] = objects[key]["apiVersion"].(string)
	}
	files := map[string]any{"support.json": map[string]any{"apiVersion": "refit.dev/support/v1", "kind": "Support", "createdAt": archiveTime, "refit": "1.2.3", "kubernetes": "v1.35.4"}}
	for kind, apiVersion := range installed {
		if kinds[kind] == "" { // there is none
			lists[kind], kinds[kind] = []any{}, apiVersion
		}
	}
	for kind, items := range lists {
		files["objects/"+kind+".json"] = map[string]any{"apiVersion": kinds[kind], "kind": kind + "List", "items": items}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), tarOf(ts, files), 0o600))
}

func tarOf(ts *testscript.TestScript, files map[string]any) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := json.Marshal(files[name])
		ts.Check(err)
		ts.Check(t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}))
		_, err = t.Write(data)
		ts.Check(err)
	}
	ts.Check(t.Close())
	ts.Check(z.Close())
	return out.Bytes()
}

func nameOf(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any)
	kind, _ := o["kind"].(string)
	name, _ := meta["name"].(string)
	return kind + "/" + name
}

// merge returns an object with the fields of another one on top; lists are replaced.
func merge(into, from map[string]any) map[string]any {
	out := maps.Clone(into)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range from {
		have, is := out[k].(map[string]any)
		more, both := v.(map[string]any)
		if is && both {
			out[k] = merge(have, more)
			continue
		}
		out[k] = v
	}
	return out
}
