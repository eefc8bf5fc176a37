package docs

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refit-dev/refit/config"
)

// TestKindsPage: docs/reference/kinds.md is made from the CRDs.
func TestKindsPage(t *testing.T) {
	t.Parallel()
	crds, err := config.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	kinds := make([]apiextensionsv1.CustomResourceDefinition, len(crds))
	for i, u := range crds {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &kinds[i]); err != nil {
			t.Fatal(err)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].Spec.Names.Kind < kinds[j].Spec.Names.Kind })
	var b strings.Builder
	b.WriteString("# Kinds\n\nMade from `config/crd` by `go test ./test/docs -update`. Every kind is of `refit.dev/v1alpha1`; `kubectl explain` has the same\ntext. Tested examples: [config/samples](../../config/samples).\n\n")
	for _, k := range kinds {
		n := k.Spec.Names
		fmt.Fprintf(&b, "- [%s](#%s) (`kubectl get %s`)\n", n.Kind, strings.ToLower(n.Kind), n.Plural)
	}
	for _, k := range kinds {
		schema := k.Spec.Versions[0].Schema.OpenAPIV3Schema
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\nScope: %s.", k.Spec.Names.Kind, cell(schema.Description), k.Spec.Scope)
		if len(k.Spec.Names.ShortNames) > 0 {
			fmt.Fprintf(&b, " Short name: `%s`.", strings.Join(k.Spec.Names.ShortNames, "`, `"))
		}
		b.WriteString("\n")
		for _, part := range sortedNames(schema.Properties) {
			if slices.Contains([]string{"apiVersion", "kind", "metadata"}, part) {
				continue
			}
			b.WriteString("\n| field | type | default | allowed | description |\n| --- | --- | --- | --- | --- |\n")
			writeField(&b, part, schema.Properties[part], slices.Contains(schema.Required, part))
		}
	}
	comparePage(t, "docs/reference/kinds.md", b.String())
}

// writeField writes a row for a field, and rows for the fields below it.
func writeField(b *strings.Builder, path string, s apiextensionsv1.JSONSchemaProps, required bool) {
	typ, below := describeType(s)
	def := ""
	switch {
	case s.Default != nil:
		def = "`" + string(s.Default.Raw) + "`"
	case required:
		def = "required"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", path, typ, def, describeLimits(s), cell(s.Description))
	suffix := ""
	if typ == "list of objects" {
		suffix = "[]"
	}
	if typ == "map of objects" {
		suffix = ".KEY"
	}
	for _, name := range sortedNames(below.Properties) {
		writeField(b, path+suffix+"."+name, below.Properties[name], slices.Contains(below.Required, name))
	}
}

// describeType returns the type in words, and the schema with the fields below. The
// types of Kubernetes itself have no rows of their own.
func describeType(s apiextensionsv1.JSONSchemaProps) (words string, below apiextensionsv1.JSONSchemaProps) {
	none := apiextensionsv1.JSONSchemaProps{}
	has := func(s apiextensionsv1.JSONSchemaProps, names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { _, ok := s.Properties[n]; return !ok })
	}
	switch {
	case s.XIntOrString:
		return "number or string", none
	case has(s, "matchLabels", "matchExpressions"):
		return "label selector", none
	case s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields:
		return "any object", none
	case s.Type == "array":
		item := *s.Items.Schema
		if has(item, "lastTransitionTime", "status", "type", "reason") {
			return "list of conditions", none
		}
		words, below := describeType(item)
		return "list of " + strings.TrimSuffix(words, "s") + "s", below
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		words, below := describeType(*s.AdditionalProperties.Schema)
		return "map of " + words + "s", below
	case s.Format == "date-time":
		return "time", none
	case s.Type == "":
		return "any", none
	}
	return s.Type, s
}

// describeLimits returns the allowed values in words.
func describeLimits(s apiextensionsv1.JSONSchemaProps) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	values := s
	if s.Type == "array" && s.Items != nil {
		values = *s.Items.Schema
	}
	if len(values.Enum) > 0 {
		var words []string
		for _, v := range values.Enum {
			var word any
			if json.Unmarshal(v.Raw, &word) == nil && word != "" {
				words = append(words, fmt.Sprintf("`%v`", word))
			}
		}
		add("%s", strings.Join(words, ", "))
	}
	if values.Pattern != "" {
		add("`%s`", values.Pattern)
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		add("%s to %s", number(*s.Minimum), number(*s.Maximum))
	case s.Minimum != nil:
		add("at least %s", number(*s.Minimum))
	case s.Maximum != nil:
		add("at most %s", number(*s.Maximum))
	}
	if s.MaxItems != nil {
		add("at most %d items", *s.MaxItems)
	}
	if values.MaxLength != nil && len(values.Enum) == 0 {
		add("at most %d characters", *values.MaxLength)
	}
	for _, rule := range s.XValidations {
		if rule.Message != "" {
			add("%s", rule.Message)
		}
	}
	return cell(strings.Join(out, ". "))
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// cell makes a text fit into one cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`).Replace(strings.Join(strings.Fields(s), " "))
}

func sortedNames(m map[string]apiextensionsv1.JSONSchemaProps) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}
