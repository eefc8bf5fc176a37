package bundlecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/refit-dev/refit/internal/cli/console"
)

// inArchive writes the files of an archive into a new working directory.
func inArchive(t *testing.T, file string) map[string]string {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	files := map[string]string{}
	for _, f := range a.Files {
		files[f.Name] = string(f.Data)
		writeTree(t, map[string]string{f.Name: string(f.Data)})
	}
	return files
}

func writeTree(t *testing.T, files map[string]string) {
	t.Helper()
	for name, data := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var nameHash = regexp.MustCompile(`(ConfigMap/\S+)-[a-z0-9]{10}\b`)

// Every image of the sources in testdata is found, and none is invented.
func TestImages(t *testing.T) {
	archives, err := filepath.Glob("testdata/images/*.txtar")
	if err != nil || len(archives) < 7 {
		t.Fatalf("%d archives, %v", len(archives), err)
	}
	for _, file := range archives {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			files := inArchive(t, file)
			args := append([]string{"bundle", "images", "-o", "json"}, strings.Fields(files["args"])...)
			var v imagesView
			if err := json.Unmarshal([]byte(must(t, args...)), &v); err != nil {
				t.Fatal(err)
			}
			var got, included []string
			for _, r := range v.References {
				at := r.File
				if r.Line > 0 {
					at = fmt.Sprintf("%s:%d", at, r.Line)
				}
				got = append(got, fmt.Sprintf("%s %s %s %s %s %s", r.state(), r.Image, r.Rule, at, nameHash.ReplaceAllString(r.Object, "$1-HASH"), r.Path))
				if r.state() == "included" && !slices.Contains(included, r.Name) {
					included = append(included, r.Name)
				}
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(files["want"]), "\n"), got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(included, v.Images); diff != "" {
				t.Errorf("images: %s", diff)
			}
		})
	}
}

func TestImagesForPeople(t *testing.T) {
	t.Chdir(t.TempDir())
	writeTree(t, map[string]string{"p.yaml": "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - image: registry.example/a:1\n  - image: nginx\n"})
	want := "IMAGE                 STATE     RULE       FILE      OBJECT  FIELD\n" +
		"registry.example/a:1  included  container  p.yaml:5  Pod/p   spec.containers[0].image\n" +
		"nginx                 problem   container  p.yaml:6  Pod/p   spec.containers[1].image\n"
	for _, source := range []string{"manifests:p.yaml", "manifests:.", "resources:p.yaml"} {
		if diff := cmp.Diff(want, must(t, "bundle", "images", source)); diff != "" {
			t.Errorf("%s: %s", source, diff)
		}
	}
	if wide := must(t, "bundle", "images", "-o", "wide", "manifests:p.yaml"); !strings.Contains(wide, "has no tag") || !strings.Contains(wide, "SOURCE") {
		t.Error(wide)
	}
}

// chartRegistry serves images and returns its address.
func chartRegistry(t *testing.T, images ...string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for i, image := range images {
		img, err := random.Image(int64(1000+i), 1)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(host + "/" + image)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
	}
	return host
}

// app is a small chart.
var app = map[string]string{
	"app/Chart.yaml":  "apiVersion: v2\nname: app\nversion: 1.0.0\n",
	"app/values.yaml": "registry: none.example\n",
	"app/templates/pod.yaml": `apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  initContainers:
  - {name: i, image: "{{ .Values.registry }}/init:1"}
  containers:
  - {name: a, image: "{{ .Values.registry }}/app:1", args: [--target=registry.example/maybe:1]}
  - {name: b, image: "{{ .Values.registry }}/app:1"}
`,
}

// The images of manifests, a kustomization and a chart are in the bundle with their names and
// digests, each once; candidates are printed and left out.
func TestCreateFromObjects(t *testing.T) {
	host := chartRegistry(t, "app:1", "init:1", "more:2", "kube-apiserver:1", "kube-scheduler:1")
	t.Chdir(t.TempDir())
	writeTree(t, app)
	writeTree(t, map[string]string{
		"kust/kustomization.yaml": "resources: [pod.yaml]\nimages: [{name: some, newName: " + host + "/app, newTag: \"1\"}]\n",
		"kust/pod.yaml":           "apiVersion: v1\nkind: Pod\nmetadata: {name: k}\nspec: {containers: [{name: k, image: some}]}\n",
		"m.yaml":                  "apiVersion: v1\nkind: Pod\nmetadata: {name: m}\nspec: {containers: [{name: m, image: " + host + "/more:2}, {name: n, image: none.example/test:1}, {name: o, image: " + host + "/kube-apiserver:1}]}\n",
	})
	r := refit(t, "bundle", "create", "--output", "b", "--unsigned", "docker://"+host+"/kube-scheduler:1", "chart:app", "--chart-set", "app:registry="+host, "kustomize:kust", "manifests:m.yaml", "--exclude-image", "none.example/*")
	if r.code != console.ExitOK {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	if !strings.Contains(r.err, "registry.example/maybe:1 may be an image") {
		t.Errorf("no candidate in %s", r.err)
	}
	var v bundleView
	if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "b", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, i := range v.Images {
		got[i.Name] = i.Group
	}
	// Pods of a hosted control plane run on workers, so every node pins their images.
	want := map[string]string{host + "/app:1": "workload", host + "/init:1": "workload", host + "/more:2": "workload", host + "/kube-apiserver:1": "workload", host + "/kube-scheduler:1": "control-plane"}
	if diff := cmp.Diff(want, got); diff != "" || len(v.Images) != len(want) {
		t.Error(diff)
	}
}

// A chart comes from a registry or a repository of charts as well.
func TestChartsFromElsewhere(t *testing.T) {
	t.Chdir(t.TempDir())
	archive := []byte(tarball(t, app))
	host := chartRegistry(t)
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.cncf.helm.config.v1+json")
	img, err := mutate.AppendLayers(img, static.NewLayer(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip"))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/charts/app:1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	server := serve(t, map[string]string{
		"/charts/index.yaml":    "entries: {app: [{version: 1.0.0, urls: [app-1.0.0.tgz], digest: " + sum256(string(archive)) + "}], bad: [{version: 1.0.0, urls: [app-1.0.0.tgz], digest: " + strings.Repeat("0", 64) + "}]}",
		"/charts/app-1.0.0.tgz": string(archive),
	})
	writeTree(t, map[string]string{"app-1.0.0.tgz": string(archive)})
	for _, source := range []string{"chart:app-1.0.0.tgz", "chart:oci://" + host + "/charts/app:1.0.0", "chart:" + server + "/charts/app:1.0.0", "chart:" + server + "/charts/app-1.0.0.tgz"} {
		var v imagesView
		if err := json.Unmarshal([]byte(must(t, "bundle", "images", "-o", "json", source)), &v); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"none.example/init:1", "none.example/app:1"}, v.Images); diff != "" {
			t.Errorf("%s: %s", source, diff)
		}
	}
	for source, want := range map[string]struct {
		code int
		says string
	}{
		"chart:" + server + "/charts/bad:1.0.0":     {console.ExitVerification, "Report it"},
		"chart:" + server + "/charts/app:2.0.0":     {console.ExitUsage, "no version 2.0.0"},
		"chart:" + server + "/charts/app":           {console.ExitUsage, "version is missing"},
		"chart:" + server + "/charts/none.tgz":      {console.ExitInternal, "404"},
		"chart:http://registry.example/app-1.tgz":   {console.ExitUsage, "is not https"},
		"chart:ftp://registry.example/app-1.tgz":    {console.ExitUsage, "not supported"},
		"chart:oci://" + host + "/charts/app:2.0.0": {console.ExitInternal, "2.0.0"},
	} {
		if r := refit(t, "bundle", "images", source); r.code != want.code || !strings.Contains(r.err, want.says) || r.out != "" {
			t.Errorf("%s: exit %d: %s", source, r.code, r.err)
		}
	}
}

// What cannot be in a bundle, leaves this computer or is misspelled is refused, with the place.
func TestObjectsAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	writeTree(t, app)
	pod := func(image string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: '" + image + "'}]}\n"
	}
	writeTree(t, map[string]string{
		"untagged.yaml": pod("registry.example/a"), "placeholder.yaml": pod("${IMAGE}"), "template.yaml": "a: {{ .Values.a }}\n",
		"remote/kustomization.yaml": "resources: [\"https://127.0.0.1:1/x.yaml\"]\n",
		"git/kustomization.yaml":    "resources: [\"github.com/a/b\"]\n",
		"nested/kustomization.yaml": "resources: [../git]\n",
		"files/kustomization.yaml":  "configMapGenerator: [{name: c, files: [\"x=https://127.0.0.1:1/x\"]}]\n",
		"plugin/kustomization.yaml": "generators: [plugin.yaml]\n",
		"plugin/plugin.yaml":        "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: c}\nfiles: [\"https://127.0.0.1:1/x\"]\n",
		"inline/kustomization.yaml": "generators:\n- |\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: c}\n  files: [\"https://127.0.0.1:1/x\"]\n",
		"exec/kustomization.yaml":   "generators:\n- |\n  apiVersion: example.dev/v1\n  kind: Tool\n  metadata: {name: t, annotations: {config.kubernetes.io/function: \"exec: {path: ./tool}\"}}\n",
		"helm/kustomization.yaml":   "helmCharts: [{name: x, repo: \"https://127.0.0.1:1\", version: 1.0.0}]\n",
		"lib/Chart.yaml":            "apiVersion: v2\nname: lib\nversion: 1.0.0\ntype: library\n",
		"old/Chart.yaml":            "apiVersion: v2\nname: old\nversion: 1.0.0\nkubeVersion: \"<1.20\"\n",
		"part/Chart.yaml":           "apiVersion: v2\nname: part\nversion: 1.0.0\ndependencies: [{name: sub, version: 1.0.0, repository: \"https://127.0.0.1:1\"}]\n",
		"broken/Chart.yaml":         "apiVersion: v2\nname: broken\nversion: 1.0.0\n",
		"broken/templates/a.yaml":   "{{ fail \"set the password\" }}",
		"lookup/Chart.yaml":         "apiVersion: v2\nname: lookup\nversion: 1.0.0\n",
		"lookup/templates/a.yaml":   "{{ if not (lookup \"v1\" \"Secret\" \"a\" \"b\") }}" + pod("registry.example/first:1") + "{{ end }}",
		"schema/Chart.yaml":         "apiVersion: v2\nname: schema\nversion: 1.0.0\n",
		"schema/values.schema.json": `{"$ref": "https://127.0.0.1:1/schema.json"}`,
		"schema/templates/a.yaml":   pod("registry.example/a:1"),
	})
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"create --output b --unsigned manifests:untagged.yaml":                   {console.ExitBlocked, "untagged.yaml:4 Pod/p spec.containers[0].image"},
		"create --output b --unsigned manifests:placeholder.yaml":                {console.ExitBlocked, "--exclude-image PATTERN"},
		"create --output b --unsigned --exclude-image [ manifests:untagged.yaml": {console.ExitUsage, "--exclude-image ["},
		"images manifests:template.yaml":                                         {console.ExitUsage, "chart:DIR"},
		"images manifests:none":                                                  {console.ExitUsage, "no such file"},
		"images manifests:":                                                      {console.ExitUsage, "not complete"},
		"images docker://a/b:1":                                                  {console.ExitUsage, "no Kubernetes objects"},
		"images chart:none":                                                      {console.ExitUsage, "no such file"},
		"images chart:lib":                                                       {console.ExitUsage, "library"},
		"images chart:old":                                                       {console.ExitUsage, "--chart-kube-version"},
		"images chart:part":                                                      {console.ExitUsage, "helm dependency build"},
		"images chart:broken":                                                    {console.ExitUsage, "set the password"},
		"images chart:app --chart-set other:a=b":                                 {console.ExitUsage, "which is no source"},
		"images chart:app --chart-values none.yaml":                              {console.ExitUsage, "none.yaml"},
		"images chart:app --chart-kube-version x":                                {console.ExitUsage, "--chart-kube-version x"},
		"images manifests:app/values.yaml --chart-set a=b":                       {console.ExitUsage, "belong to the source chart:REF"},
		"images kustomize:none":                                                  {console.ExitUsage, "kustomization none"},
		"images kustomize:remote":                                                {console.ExitUsage, "is not a local path"},
		"images kustomize:git":                                                   {console.ExitUsage, "is not a local path"},
		"images kustomize:nested":                                                {console.ExitUsage, "is not a local path"},
		"images kustomize:files":                                                 {console.ExitUsage, "is not a local path"},
		"images kustomize:plugin":                                                {console.ExitUsage, "is not a local path"},
		"images kustomize:inline":                                                {console.ExitUsage, "is not a local path"},
		"images kustomize:exec":                                                  {console.ExitUsage, "kustomization exec"},
		"images kustomize:helm":                                                  {console.ExitUsage, "kustomization helm"},
		"images chart:lookup":                                                    {console.ExitOK, ""},
		"images chart:schema":                                                    {console.ExitOK, ""},
	} {
		r := refit(t, append([]string{"bundle"}, strings.Fields(line)...)...)
		if r.code != want.code || !strings.Contains(r.err, want.says) || (r.out != "") != (want.code == console.ExitOK) {
			t.Errorf("%s: exit %d: %s", line, r.code, r.err)
		}
	}
}

// serve serves files on the loopback and returns the URL.
func serve(t *testing.T, files map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, data)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
