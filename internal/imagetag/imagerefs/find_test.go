package imagerefs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// found are the references of a file as lines: whether it is one, the image, rule, object, path.
func found(t *testing.T, data string) []string {
	t.Helper()
	refs, err := Find("f.yaml", []byte(data))
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	var out []string
	for _, r := range refs {
		maybe := ""
		if r.Maybe {
			maybe = "maybe "
		}
		out = append(out, fmt.Sprintf("%s%s %s %s %s", maybe, r.Image, r.Rule, r.Object, r.Path))
	}
	return out
}

func TestRules(t *testing.T) {
	t.Parallel()
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
	digest := "sha256:" + strings.Repeat("1", 64)
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"the three lists of containers": {pod + "spec: {containers: [{image: a.example/a:1}], initContainers: [{image: a.example/b:1}], ephemeralContainers: [{image: a.example/c:1}]}", []string{
			"a.example/a:1 container Pod/p spec.containers[0].image", "a.example/b:1 container Pod/p spec.initContainers[0].image", "a.example/c:1 container Pod/p spec.ephemeralContainers[0].image"}},
		"a container without an image":  {pod + "spec: {containers: [{name: a}, {name: b, image: ''}]}", nil},
		"an image that is not a string": {pod + "spec: {containers: [{image: 5}]}", nil},
		"a placeholder, as it is":       {pod + "spec: {containers: [{image: '${IMAGE}'}]}", []string{"${IMAGE} container Pod/p spec.containers[0].image"}},
		"the status and managed fields": {pod + "status: {containerStatuses: [{image: a.example/a:1}]}\n", nil},
		"an object without a kind":      {"spec: {containers: [{image: a.example/a:1}]}", nil},
		"a document that is no object":  {"- a\n---\nb\n---\n---\n", nil},
		"a list in a list":              {"kind: List\nitems: [{kind: PodList, items: [{kind: Pod, metadata: {namespace: n, name: q}, spec: {containers: [{image: b:1}]}}]}]", []string{"b:1 container Pod/n/q spec.containers[0].image"}},
		"a custom resource with a pod":  {"apiVersion: x.example/v1\nkind: Rollout\nspec: {template: {spec: {containers: [{image: a.example/a:1}]}}}", []string{"a.example/a:1 container Rollout spec.template.spec.containers[0].image"}},
		"a schema":                      {"kind: CustomResourceDefinition\nspec: {schema: {properties: {containers: {type: array}, image: {type: string, default: a.example/a:1}}}}", []string{"maybe a.example/a:1 text-like CustomResourceDefinition spec.schema.properties.image.default"}},
		"a taint":                       {pod + "spec: {x: 'node-role.kubernetes.io/control-plane:NoSchedule'}", nil},
		"a URL":                         {pod + "spec: {x: 'https://a.example/b:1', y: 'oci://a.example/b:1'}", nil},
		"a host with a port":            {pod + "spec: {x: 'a.example:8080', y: 'a.example/b'}", nil},
		"text with a reference in it":   {pod + "spec: {x: 'run (a.example/b:1), then a.example/b:1'}", []string{"maybe a.example/b:1 text-like Pod/p spec.x"}},
		"a flag with its value":         {pod + "spec: {containers: [{image: i/i:1, args: ['--acme-http01-solver-image=a/b:1', '--x']}]}", []string{"i/i:1 container Pod/p spec.containers[0].image", "a/b:1 argument Pod/p spec.containers[0].args[0]"}},
		"a flag before its value":       {pod + "spec: {containers: [{image: i/i:1, command: [m, -shell-image], args: ['a/b@" + digest + "']}]}", []string{"i/i:1 container Pod/p spec.containers[0].image", "a/b@" + digest + " argument Pod/p spec.containers[0].args[0]"}},
		"a flag whose name is an image": {pod + "spec: {containers: [{image: i/i:1, args: ['--prometheus-config-reloader=a/b:1']}]}", []string{"i/i:1 container Pod/p spec.containers[0].image", "a/b:1 argument Pod/p spec.containers[0].args[0]"}},
		"a flag with a pull policy":     {pod + "spec: {containers: [{image: i/i:1, args: ['--image-pull-policy=Always', '--image', '--y']}]}", []string{"i/i:1 container Pod/p spec.containers[0].image"}},
		"a flag with a bare name":       {pod + "spec: {containers: [{image: i/i:1, args: ['--base-image=a.example/b', '--disk-image=ubuntu:22.04']}]}", []string{"i/i:1 container Pod/p spec.containers[0].image", "maybe a.example/b image-like Pod/p spec.containers[0].args[0]", "maybe ubuntu:22.04 image-like Pod/p spec.containers[0].args[1]"}},
		"another flag":                  {pod + "spec: {containers: [{image: i/i:1, args: ['--target=a.example/b:1']}]}", []string{"i/i:1 container Pod/p spec.containers[0].image", "maybe a.example/b:1 text-like Pod/p spec.containers[0].args[0]"}},
		"variables":                     {pod + "spec: {containers: [{image: i/i:1, env: [{name: RELATED_IMAGE_A, value: a/b:1}, {name: IMAGE_PULL, value: Always}, {name: OTHER, value: a.example/b:1}]}]}", []string{"i/i:1 container Pod/p spec.containers[0].image", "a/b:1 variable Pod/p spec.containers[0].env[0].value", "maybe a.example/b:1 text-like Pod/p spec.containers[0].env[2].value"}},
		"a list in a variable":          {pod + "spec: {containers: [{image: i/i:1, env: [{name: X_IMAGES, value: 'a=a/b:1,c=a/c:2'}, {name: Y_IMAGES, value: 'a=a.example/b:1,none'}]}]}", []string{"i/i:1 container Pod/p spec.containers[0].image", "a/b:1 variable Pod/p spec.containers[0].env[0].value", "a/c:2 variable Pod/p spec.containers[0].env[0].value", "maybe a.example/b:1 text-like Pod/p spec.containers[0].env[1].value"}},
		"objects in text":               {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: |\n    apiVersion: v1\n    kind: Pod\n    spec: {containers: [{image: a/a:1}]}\n    ---\n    apiVersion: v1\n    kind: Pod\n    spec: {containers: [{image: a/b:1}]}\n", []string{"a/a:1 container ConfigMap/c data.a[0].spec.containers[0].image", "a/b:1 container ConfigMap/c data.a[1].spec.containers[0].image"}},
		"text that is not only objects": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: |\n    apiVersion: v1\n    kind: Pod\n    spec: {x: a.example/a:1\n", []string{"maybe a.example/a:1 text-like ConfigMap/c data.a"}},
		"values of a chart":             {"apiVersion: x.example/v1\nkind: Release\nspec: {values: {image: {registry: a.example, repository: b, tag: 1.5}, sidecarImage: c/d}}", []string{"maybe a.example/b:1.5 image-like Release spec.values.image", "maybe c/d image-like Release spec.values.sidecarImage"}},
		"a mapping in the table":        {"apiVersion: operator.victoriametrics.com/v1beta1\nkind: VMSingle\nspec: {image: {repository: a/b, tag: v1}}", []string{"a/b:v1 custom-resource-field VMSingle spec.image"}},
		"the kind of another group":     {"apiVersion: other.example/v1\nkind: Prometheus\nspec: {image: a.example/b:1}", []string{"maybe a.example/b:1 image-like Prometheus spec.image"}},
		"every key of a mapping":        {"apiVersion: operator.knative.dev/v1beta1\nkind: KnativeServing\nspec: {registry: {override: {activator: a/b:1, 'queue/proxy': a/c:1}}}", []string{"a/b:1 custom-resource-field KnativeServing spec.registry.override.activator", "a/c:1 custom-resource-field KnativeServing spec.registry.override[\"queue/proxy\"]"}},
		"lists of lists":                {"apiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow\nspec: {workflowSpec: {templates: [{steps: [[], [{inline: {script: {image: a/b:1}}}]]}]}}", []string{"a/b:1 custom-resource-field CronWorkflow spec.workflowSpec.templates[0].steps[1][0].inline.script.image"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, found(t, c.data)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every row of the table finds the fields that it names.
func TestTable(t *testing.T) {
	t.Parallel()
	for _, row := range Fields {
		if !strings.HasPrefix(row.Doc, "https://") {
			t.Errorf("%s %v has no page that defines its fields", row.Group, row.Kinds)
		}
		for _, kind := range row.Kinds {
			for _, path := range row.Paths {
				inner, at := "r.example/a:1", strings.NewReplacer("[]", "[0]", "*", "any").Replace(path)
				parts := strings.Split(path, ".")
				for i := len(parts) - 1; i >= 0; i-- {
					key := strings.NewReplacer("[]", "", "*", "any").Replace(parts[i])
					lists := strings.Count(parts[i], "[]")
					inner = fmt.Sprintf("{%q: %s%s%s}", key, strings.Repeat("[", lists), inner, strings.Repeat("]", lists))
					if lists == 0 && i == len(parts)-1 {
						inner = fmt.Sprintf("{%q: %q}", key, "r.example/a:1")
					}
				}
				data := fmt.Sprintf("{apiVersion: %s/v1, kind: %s, %s", row.Group, kind, inner[1:])
				want := []string{fmt.Sprintf("r.example/a:1 %s %s %s", RuleField, kind, at)}
				if diff := cmp.Diff(want, found(t, data)); diff != "" {
					t.Errorf("%s %s: %s", kind, path, diff)
				}
			}
		}
	}
}

func TestHostileInput(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	for name, c := range map[string]struct{ data, want string }{
		"aliases that multiply":     {bomb, "aliases included"},
		"an alias of what it is in": {"kind: List\nitems: &a [*a]", "nested more than"},
		"a merge of what it is in":  {"a: &a {<<: *a}", "nested more than"},
		"deep nesting":              {strings.Repeat("[", 5000), "f.yaml"},
		"too many values":           {strings.Repeat(",", maxValues+1), "split it"},
		"too large":                 {strings.Repeat(" ", MaxSize+1), "split it"},
		"a template":                {"a: {{ .Values.x }}", "chart:DIR"},
		"no YAML":                   {"a: [", "f.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Find("f.yaml", []byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	refs, err := Find("f.yaml", []byte("kind: Pod\nspec:\n  containers:\n  - name: a\n    image: a:1\n---\nkind: Pod\nspec: {containers: [{image: b:1}]}\n"))
	if err != nil || len(refs) != 2 || refs[0].Line != 5 || refs[1].Line != 8 {
		t.Errorf("%+v, %v", refs, err)
	}
}
