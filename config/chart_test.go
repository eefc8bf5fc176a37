package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/areas"
)

// chartDir has the chart of refit. Its templates are generated from the files of this
// directory: go test ./config -run TestChart -update.
const chartDir = "../charts/refit"

// marks are lines of a template. In the YAML an item of a list, or the value of a field, stands
// for them by their number: short, since YAML folds long text.
var marks []string

var markNumber = regexp.MustCompile("@@([0-9]+)@@")

func mark(text string) string {
	marks = append(marks, text)
	return fmt.Sprintf("@@%d@@", len(marks)-1)
}

const pullPolicy = "imagePullPolicy: {{ .Values.image.pullPolicy }}"

// chartValues are the names of areas in the chart's values.
var chartValues = map[string]string{
	areas.BootImages: "bootImages", areas.OSImages: "osImages", areas.ImageTags: "imageTags", areas.ClusterAPI: "clusterAPI",
}

// TestChartIsGenerated compares the chart's templates with what this source gives.
func TestChartIsGenerated(t *testing.T) {
	objects, err := config.Static("REFIT_IMAGE")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*strings.Builder{}
	for _, o := range objects {
		name := chartFile(o)
		if files[name] == nil {
			files[name] = &strings.Builder{}
			files[name].WriteString("# Generated from config/: go test ./config -run TestChart -update\n")
		}
		files[name].WriteString("---\n" + chartTemplate(t, o))
	}
	for name, text := range files {
		path := filepath.Join(chartDir, "templates", name)
		if *update {
			if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil || string(have) != text.String() {
			t.Errorf("%s is not what config/ gives (%v): go test ./config -run TestChart -update", path, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(chartDir, "templates", "*.yaml"))
	if err != nil || len(there) != len(files) {
		t.Errorf("%d templates, %d come from config/: remove what is not generated (%v)", len(there), len(files), err)
	}
}

func chartFile(o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return "crds.yaml"
	case "Namespace":
		return "namespaces.yaml"
	case "Deployment":
		return "controller.yaml"
	case "DaemonSet":
		return "agents.yaml"
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return "admission.yaml"
	}
	return "rights.yaml"
}

// chartTemplate is the template of one object.
func chartTemplate(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	whole := o.DeepCopy()
	keep := condition(t, o, func(left *unstructured.Unstructured) bool { return left != nil })
	switch o.GetKind() {
	case "Role", "ClusterRole":
		markRules(t, o, whole, "rules")
	case "ValidatingAdmissionPolicy":
		markRules(t, o, whole, "spec", "matchConstraints", "resourceRules")
	case "Deployment":
		setField(t, whole, mark("replicas: {{ .Values.controller.replicas }}"), "spec", "replicas")
		markPod(t, whole, "controller", ".Values.controller")
		container := containers(t, whole)[0].(map[string]any)
		container["command"] = append(container["command"].([]any),
			mark("{{- with include \"refit.without\" . }}\n- -without={{ . }}\n{{- end }}"))
		// Not as args: the first field of a list's item has no line of its own.
		container["imagePullPolicy"] = mark(pullPolicy + "\n{{- with .Values.controller.args }}\nargs: {{ toJson . }}\n{{- end }}")
		setContainers(t, whole, container)
		volumes, _, _ := unstructured.NestedSlice(whole.Object, "spec", "template", "spec", "volumes")
		if err := unstructured.SetNestedField(volumes[0].(map[string]any), mark(`secretName: {{ (.Values.notifications).secretName | default "refit-notifications" }}`), "secret", "secretName"); err != nil {
			t.Fatal(err)
		}
		setField(t, whole, volumes, "spec", "template", "spec", "volumes")
	case "DaemonSet":
		keep = "if .Values.agents.daemonSet"
		markPod(t, whole, "installer", ".Values.agents")
	}
	text, err := yaml.Marshal(whole.Object)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "{{") {
		t.Fatalf("%s has braces, which a template would read", key(o))
	}
	out := unmark(string(text))
	if keep != "" {
		out = "{{- " + keep + " }}\n" + out + "{{- end }}\n"
	}
	return out
}

func containers(t *testing.T, o *unstructured.Unstructured) []any {
	t.Helper()
	all, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || !found || len(all) != 1 {
		t.Fatalf("%s: one container is expected: %v %v", key(o), all, err)
	}
	return all
}

func setContainers(t *testing.T, o *unstructured.Unstructured, one map[string]any) {
	t.Helper()
	setField(t, o, []any{one}, "spec", "template", "spec", "containers")
}

func setField(t *testing.T, o *unstructured.Unstructured, v any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(o.Object, v, path...); err != nil {
		t.Fatal(err)
	}
}

// markPod makes the fields of a pod that people set values of the chart.
func markPod(t *testing.T, o *unstructured.Unstructured, name, values string) {
	t.Helper()
	container := containers(t, o)[0].(map[string]any)
	if container["name"] != name {
		t.Fatalf("%s: container %v", key(o), container["name"])
	}
	container["image"] = mark(`image: {{ include "refit.image" . | quote }}`)
	container["imagePullPolicy"] = mark(pullPolicy)
	container["resources"] = mark("resources: {{ toJson " + values + ".resources }}")
	setContainers(t, o, container)
	setField(t, o, mark("tolerations: {{ toJson "+values+".tolerations }}"), "spec", "template", "spec", "tolerations")
	for field, value := range map[string]string{"nodeSelector": values + ".nodeSelector", "imagePullSecrets": ".Values.image.pullSecrets"} {
		setField(t, o, mark("{{- with "+value+" }}\n"+field+": {{ toJson . }}\n{{- end }}"), "spec", "template", "spec", field)
	}
}

// markRules puts conditions around the rules, and the resources of rules, that only some areas need.
func markRules(t *testing.T, o, whole *unstructured.Unstructured, path ...string) {
	t.Helper()
	rules, _, err := unstructured.NestedSlice(o.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	out := []any{} // an aggregated role has none, and a role without the field is another
	for _, r := range rules {
		rule := r.(map[string]any)
		resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
		var marked []any
		for _, name := range resources {
			c := condition(t, only(t, o, rule, name, path), func(left *unstructured.Unstructured) bool { return hasRule(left, path) })
			marked = append(marked, between(c, name)...)
		}
		whole := condition(t, only(t, o, rule, "", path), func(left *unstructured.Unstructured) bool { return hasRule(left, path) })
		if len(marked) > 0 {
			rule["resources"] = marked
		}
		out = append(out, between(whole, rule)...)
	}
	setField(t, whole, out, path...)
}

// only is an object with one of its rules, and with a name only one resource of it.
func only(t *testing.T, o *unstructured.Unstructured, rule map[string]any, resource string, path []string) *unstructured.Unstructured {
	t.Helper()
	one, alone := o.DeepCopy(), (&unstructured.Unstructured{Object: rule}).DeepCopy().Object
	if resource != "" {
		alone["resources"] = []any{resource}
	}
	setField(t, one, []any{alone}, path...)
	return one
}

func hasRule(o *unstructured.Unstructured, path []string) bool {
	if o == nil {
		return false
	}
	rules, _, _ := unstructured.NestedSlice(o.Object, path...)
	return len(rules) > 0
}

func between(condition string, v any) []any {
	if condition == "" {
		return []any{v}
	}
	return []any{mark("{{- " + condition + " }}"), v, mark("{{- end }}")}
}

// condition is the template's condition under which something of an object stays: "" if it
// always does, else that one of some areas is on. It fails where that is not the rule.
func condition(t *testing.T, o *unstructured.Unstructured, stays func(*unstructured.Unstructured) bool) string {
	t.Helper()
	left := func(out areas.Set) *unstructured.Unstructured {
		if rest := config.Without([]*unstructured.Unstructured{o}, out); len(rest) == 1 {
			return rest[0]
		}
		return nil
	}
	var of []string
	for _, name := range areas.Names() {
		others := slices.DeleteFunc(areas.Names(), func(n string) bool { return n == name })
		if stays(left(parse(t, others))) {
			of = append(of, name)
		}
	}
	for _, out := range combinations(t) {
		want := len(of) == len(areas.All) || slices.ContainsFunc(of, func(n string) bool { return !out.Has(n) })
		if got := stays(left(out)); got != want {
			t.Fatalf("%s without %q: stays %v, the chart can only say that one of %v is on", key(o), out, got, of)
		}
	}
	switch len(of) {
	case len(areas.All):
		return ""
	case 1:
		return "if .Values.areas." + chartValues[of[0]]
	}
	var words []string
	for _, n := range of {
		words = append(words, ".Values.areas."+chartValues[n])
	}
	return "if or " + strings.Join(words, " ")
}

func parse(t *testing.T, names []string) areas.Set {
	t.Helper()
	s, err := areas.Parse(names)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unmark puts the lines of marks in their places.
func unmark(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		found := markNumber.FindStringSubmatch(line)
		if found == nil {
			out.WriteString(line)
			continue
		}
		n, _ := strconv.Atoi(found[1])
		for l := range strings.SplitSeq(marks[n], "\n") {
			if !strings.HasPrefix(l, "{{-") { // such a line disappears
				l = indentOf(line) + l
			}
			out.WriteString(l + "\n")
		}
	}
	return out.String()
}

func indentOf(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " "))] }

// rendered is what `helm template` gives for values.
func rendered(t *testing.T, values map[string]any, namespace string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "refit", Namespace: namespace, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for name, text := range files {
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		for doc := range strings.SplitSeq(text, "---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(doc), &u.Object); err != nil {
				return nil, fmt.Errorf("%s: %w in\n%s", name, err, doc)
			}
			if len(u.Object) > 0 {
				out = append(out, u)
			}
		}
	}
	return out, nil
}

// TestChart checks that every choice of areas gives the objects that refit install applies for it.
func TestChart(t *testing.T) {
	for _, out := range combinations(t) {
		objects, err := config.Static("refit.example/refit:1")
		if err != nil {
			t.Fatal(err)
		}
		on := map[string]any{}
		for _, n := range areas.Names() {
			on[chartValues[n]] = !out.Has(n)
		}
		have, err := rendered(t, map[string]any{"areas": on, "image": map[string]any{"repository": "refit.example/refit", "tag": "1"}}, "kube-system")
		if err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("without %q", out), have, config.Without(objects, out))
	}
}

func compare(t *testing.T, what string, have, want []*unstructured.Unstructured) {
	t.Helper()
	texts := map[string]string{}
	for _, o := range have {
		texts[key(o)] = asYAML(t, o)
	}
	for _, o := range want {
		if got := texts[key(o)]; got != asYAML(t, o) {
			t.Errorf("%s: %s differs:\n%s\nwant\n%s", what, key(o), got, asYAML(t, o))
		}
		delete(texts, key(o))
	}
	for k := range texts {
		t.Errorf("%s: more than refit install applies: %s", what, k)
	}
}

func asYAML(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestChartValues checks what people set, and that a value which the chart does not know is refused.
func TestChartValues(t *testing.T) {
	have, err := rendered(t, map[string]any{
		"image":      map[string]any{"digest": "sha256:" + strings.Repeat("a", 64), "pullSecrets": []any{map[string]any{"name": "pull"}}},
		"controller": map[string]any{"replicas": 2, "args": []any{"-v=1"}, "nodeSelector": map[string]any{"disk": "ssd"}, "resources": map[string]any{"limits": map[string]any{"memory": "2Gi"}}},
		"agents":     map[string]any{"daemonSet": false}, "notifications": map[string]any{"secretName": "receivers"},
	}, "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(have, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	if i < 0 || slices.ContainsFunc(have, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" }) {
		t.Fatal("a Deployment and no DaemonSet are expected")
	}
	text := asYAML(t, have[i])
	for _, want := range []string{"replicas: 2", "image: refit.dev/refit@sha256:aaaa", "- -v=1", "disk: ssd", "memory: 2Gi", "- name: pull", "secretName: receivers"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for name, c := range map[string]struct {
		values    map[string]any
		namespace string
		want      string
	}{
		"a value that is not known": {map[string]any{"replicas": 2}, "kube-system", "replicas"},
		"an area that is not known": {map[string]any{"areas": map[string]any{"boot-images": true}}, "kube-system", "boot-images"},
		"no digest":                 {map[string]any{"image": map[string]any{"digest": "latest"}}, "kube-system", "digest"},
		"the namespace of refit":    {nil, "refit-system", "install it with --namespace kube-system"},
	} {
		if _, err := rendered(t, c.values, c.namespace); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
