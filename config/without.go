package config

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/internal/areas"
)

// controllerName is the name of the controller's Deployment and of its roles.
const controllerName = "refit-controller"

// withoutFlag of the controller.
const withoutFlag = "-without="

// WithoutOf returns the areas that the containers of a controller's pod leave out.
func WithoutOf(containers []corev1.Container) areas.Set {
	for _, c := range containers {
		for _, word := range c.Command {
			if names, ok := strings.CutPrefix(word, withoutFlag); ok {
				out, _ := areas.Parse(strings.Split(names, ",")) // one of another version may have others
				return out
			}
		}
	}
	return areas.Set{}
}

// Without returns the objects of an installation that leaves areas out: no kind, no right and no
// admission policy of theirs, and a controller that knows it. The objects given are not changed.
func Without(objects []*unstructured.Unstructured, out areas.Set) []*unstructured.Unstructured {
	if out.Empty() {
		return objects
	}
	var kept []*unstructured.Unstructured
	for _, o := range objects {
		if omitted(o, out) {
			continue
		}
		o = o.DeepCopy()
		switch o.GetKind() {
		case "Role", "ClusterRole":
			if !narrowRules(o, out) {
				continue
			}
		case "ValidatingAdmissionPolicy":
			narrowMatches(o, out)
		case "Deployment":
			tellController(o, out)
		}
		kept = append(kept, o)
	}
	return kept
}

// omitted reports whether an object goes as a whole.
func omitted(o *unstructured.Unstructured, out areas.Set) bool {
	if o.GetKind() == "CustomResourceDefinition" {
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		return out.OmitsKind(kind)
	}
	return out.OmitsObject(areas.Object{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
}

// narrowRules takes the rights of areas that are left out from a role, and reports whether it
// still has some.
func narrowRules(o *unstructured.Unstructured, out areas.Set) bool {
	if _, aggregated := o.Object["aggregationRule"]; aggregated {
		return true // Kubernetes fills in its rules
	}
	rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
	rules = narrow(rules, func(groups []string, resource string) bool {
		return slices.ContainsFunc(groups, func(group string) bool {
			return group == areas.Group && out.OmitsResource(resource) ||
				o.GetName() == controllerName && out.OmitsRule(areas.Rule{Namespace: o.GetNamespace(), Group: group, Resource: resource})
		})
	})
	o.Object["rules"] = rules
	return len(rules) > 0
}

// narrowMatches takes the kinds of areas that are left out from what a policy is asked about.
func narrowMatches(o *unstructured.Unstructured, out areas.Set) {
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
	rules = narrow(rules, func(groups []string, resource string) bool {
		return slices.Contains(groups, areas.Group) && out.OmitsResource(resource)
	})
	// Setting what was read from the same path cannot fail.
	_ = unstructured.SetNestedSlice(o.Object, rules, "spec", "matchConstraints", "resourceRules")
}

// narrow removes resources from rules, and rules whose resources are all removed.
func narrow(rules []any, goes func(groups []string, resource string) bool) []any {
	var out []any
	for _, r := range rules {
		rule, ok := r.(map[string]any)
		if !ok {
			continue
		}
		groups, _, _ := unstructured.NestedStringSlice(rule, "apiGroups")
		all, has, _ := unstructured.NestedStringSlice(rule, "resources")
		left := slices.DeleteFunc(slices.Clone(all), func(resource string) bool { return goes(groups, resource) })
		if has && len(left) == 0 {
			continue // nonResourceURLs have none from the beginning
		}
		if len(left) < len(all) {
			_ = unstructured.SetNestedStringSlice(rule, left, "resources")
		}
		out = append(out, rule)
	}
	return out
}

// tellController starts the controller with the areas that are left out. They stand in its
// command: arguments are the administrator's.
func tellController(o *unstructured.Unstructured, out areas.Set) {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		container, ok := c.(map[string]any)
		if !ok || o.GetName() != controllerName {
			continue
		}
		command, _, _ := unstructured.NestedStringSlice(container, "command")
		_ = unstructured.SetNestedStringSlice(container, append(command, withoutFlag+out.String()), "command")
	}
	_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}
