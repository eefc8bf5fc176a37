package bootimage

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Writer is an entry of managedFields.
type Writer struct {
	Name string
	// Applies is true for server-side apply.
	Applies bool
	At      time.Time
	// Fields is the JSON of what it owns.
	Fields []byte
}

// gitOps are tools that write what stands in a repository, also without
// server-side apply: what they own they bring back.
var gitOps = []string{"argocd", "kustomize-controller", "helm-controller", "flux", "fleet", "rancher-fleet", "config-sync", "hive"}

// Owner returns who else claims one of the fields: an applier other than us, or a
// tool that brings back what it wrote. Empty if nobody does.
func Owner(writers []Writer, fields [][]string, ours func(string) bool) string {
	for _, w := range writers {
		if ours(w.Name) || !w.Applies && !slices.ContainsFunc(gitOps, func(g string) bool { return strings.Contains(w.Name, g) }) {
			continue
		}
		if owns(w, fields) {
			return w.Name
		}
	}
	return ""
}

// Last returns who, but us, wrote one of the fields last.
func Last(writers []Writer, fields [][]string, ours func(string) bool) (string, time.Time) {
	name, at := "", time.Time{}
	for _, w := range writers {
		if !ours(w.Name) && owns(w, fields) && !w.At.Before(at) {
			name, at = w.Name, w.At
		}
	}
	return name, at
}

func owns(w Writer, fields [][]string) bool {
	var tree map[string]any
	if json.Unmarshal(w.Fields, &tree) != nil {
		return false
	}
	return slices.ContainsFunc(fields, func(f []string) bool { return within(tree, f) })
}

// within follows a path of keys. A list is owned as a whole or item by item;
// either way an owner of the list is one of what is in it.
func within(tree map[string]any, keys []string) bool {
	for i, k := range keys {
		next, ok := tree["f:"+k].(map[string]any)
		if !ok {
			return false
		}
		if len(next) == 0 { // owned with all below
			return true
		}
		if i == len(keys)-1 {
			return true
		}
		tree = next
	}
	return false
}
