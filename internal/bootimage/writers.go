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

// gitOps are tools that restore the state of a repository, also without server-side apply.
var gitOps = []string{"argocd", "kustomize-controller", "helm-controller", "flux", "fleet", "rancher-fleet", "config-sync", "hive"}

// ForeignOwner returns the other writer that would restore one of the fields: a server-side
// applier, or a GitOps tool. It returns "" if there is none.
func ForeignOwner(writers []Writer, fields [][]string, ours func(string) bool) string {
	for _, w := range writers {
		if ours(w.Name) || !w.Applies && !slices.ContainsFunc(gitOps, func(g string) bool { return strings.Contains(w.Name, g) }) {
			continue
		}
		if ownsAny(w, fields) {
			return w.Name
		}
	}
	return ""
}

// LastForeignWriter returns the last writer of one of the fields that is not refit.
func LastForeignWriter(writers []Writer, fields [][]string, ours func(string) bool) (string, time.Time) {
	name, at := "", time.Time{}
	for _, w := range writers {
		if !ours(w.Name) && ownsAny(w, fields) && !w.At.Before(at) {
			name, at = w.Name, w.At
		}
	}
	return name, at
}

func ownsAny(w Writer, fields [][]string) bool {
	var tree map[string]any
	if json.Unmarshal(w.Fields, &tree) != nil {
		return false
	}
	return slices.ContainsFunc(fields, func(f []string) bool { return containsPath(tree, f) })
}

// containsPath reports whether managedFields has a path of keys. An owner of a list, or of
// one of its items, counts as an owner of the path below it.
func containsPath(tree map[string]any, keys []string) bool {
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

// KeysOf returns the keys of a JSON pointer up to the first list.
func KeysOf(pointer string) []string {
	var out []string
	for _, s := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if s != "" && strings.Trim(s, "0123456789") == "" {
			break
		}
		out = append(out, strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~"))
	}
	return out
}
