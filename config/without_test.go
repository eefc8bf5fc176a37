package config_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/areas"
)

// combinations of areas that can be left out.
func combinations(t *testing.T) []areas.Set {
	t.Helper()
	var out []areas.Set
	for bits := range 1 << len(areas.All) {
		var names []string
		for i, n := range areas.Names() {
			if bits&(1<<i) != 0 {
				names = append(names, n)
			}
		}
		s, err := areas.Parse(names)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func manifests(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	all, err := config.Manifests("refit.example/refit:1")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// controllerRights are the controller's: one line for each verb, "namespace group/resource verb".
func controllerRights(objects []*unstructured.Unstructured) map[string]bool {
	out := map[string]bool{}
	for _, o := range objects {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, r := range rules {
			rule := r.(map[string]any)
			groups, _, _ := unstructured.NestedStringSlice(rule, "apiGroups")
			resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
			verbs, _, _ := unstructured.NestedStringSlice(rule, "verbs")
			for _, g := range groups {
				for _, res := range resources {
					for _, v := range verbs {
						if o.GetName() == "refit-controller" {
							out[fmt.Sprintf("%s %s/%s %s", o.GetNamespace(), g, res, v)] = true
						}
					}
				}
			}
		}
	}
	return out
}

// What is left out leaves no trace in what is applied, and takes nothing from the others.
func TestWithoutAreas(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	before, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range combinations(t) {
		kept := config.Without(all, out)
		rest, left := map[string]bool{}, controllerRights(kept)
		for _, o := range kept {
			rest[key(o)] = true
			text := toText(t, o)
			for _, a := range out.Areas() {
				for _, k := range a.Kinds {
					// The fields of other kinds keep their descriptions.
					if regexp.MustCompile(`\b`+k.Plural+`\b`).MatchString(text) || o.GetKind() != "CustomResourceDefinition" && strings.Contains(text, k.Name) {
						t.Errorf("without %s: %s names %s", out, key(o), k.Name)
					}
				}
				for _, forArea := range a.Objects {
					if needed := slices.ContainsFunc(areas.All, func(b areas.Area) bool { return !out.Has(b.Name) && slices.Contains(b.Objects, forArea) }); !needed && key(o) == forArea.Kind+" "+forArea.Namespace+"/"+forArea.Name {
						t.Errorf("without %s: %s is there", out, key(o))
					}
				}
			}
		}
		for right := range controllerRights(all) {
			if want := !goes(out, right); left[right] != want {
				t.Errorf("without %s: the controller's right %q is there: %t", out, right, left[right])
			}
		}
		for _, o := range all { // what no area lists stays
			if !rest[key(o)] && !listed(o) {
				t.Errorf("without %s: %s is gone", out, key(o))
			}
		}
	}
	if after, err := json.Marshal(all); err != nil || string(after) != string(before) {
		t.Errorf("the objects given were changed: %v", err)
	}
}

func toText(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	b, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// goes reports whether a right is only for areas that are left out.
func goes(out areas.Set, right string) bool {
	ns, rest, _ := strings.Cut(right, " ")
	what, _, _ := strings.Cut(rest, " ")
	group, resource, _ := strings.Cut(what, "/")
	return group == areas.Group && out.OmitsResource(resource) || out.OmitsRule(areas.Rule{Namespace: ns, Group: group, Resource: resource})
}

// listed reports whether an object belongs to areas.
func listed(o *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	if _, ok := areas.AreaOfKind(kind); ok {
		return true
	}
	return slices.ContainsFunc(areas.All, func(a areas.Area) bool {
		return slices.Contains(a.Objects, areas.Object{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
	})
}

// The list of areas names what exists: a name that was mistyped would leave nothing out.
func TestAreasNameWhatExists(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	rights := controllerRights(all)
	for _, a := range areas.All {
		for _, k := range a.Kinds {
			if !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool {
				kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
				return o.GetName() == k.Plural+"."+areas.Group && kind == k.Name
			}) {
				t.Errorf("%s: there is no kind %s with the plural %s", a.Name, k.Name, k.Plural)
			}
		}
		for _, want := range a.Objects {
			if !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool {
				return want == areas.Object{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
			}) {
				t.Errorf("%s: there is no %s %s/%s", a.Name, want.Kind, want.Namespace, want.Name)
			}
		}
		for _, r := range a.Rules {
			found := false
			for right := range rights {
				found = found || strings.HasPrefix(right, fmt.Sprintf("%s %s/%s ", r.Namespace, r.Group, r.Resource))
			}
			if !found {
				t.Errorf("%s: the controller has no right on %s/%s in %q", a.Name, r.Group, r.Resource, r.Namespace)
			}
		}
	}
}

// The controller gets the omitted areas with any arguments of the administrator.
func TestWithoutTellsTheController(t *testing.T) {
	t.Parallel()
	out, err := areas.Parse([]string{areas.OSImages, areas.BootImages})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range config.Without(manifests(t), out) {
		if o.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		c := containers[0].(map[string]any)
		if got, want := c["command"], []any{"/refit-controller", "-metrics-address=:18742", "-notifications=/etc/refit/notifications/receivers.yaml", "-without=boot-images,os-images"}; fmt.Sprint(got) != fmt.Sprint(want) || c["args"] != nil {
			t.Errorf("command %v, arguments %v", got, c["args"])
		}
		return
	}
	t.Error("there is no Deployment")
}
