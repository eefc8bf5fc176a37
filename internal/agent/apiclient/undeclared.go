package apiclient

import (
	"regexp"
	"slices"
	"strings"
)

// maxUndeclared is how many answers about undeclared members one write of a status accepts:
// the API server names one member of each object at a time.
const maxUndeclared = 32

var (
	undeclared = regexp.MustCompile(`\.(status\.\S+): field not declared in schema`)
	selector   = regexp.MustCompile(`\[[^\]]*\]`)
)

// dropUndeclared removes the members from an object that the API server's error calls
// undeclared, and returns their paths. The API server refuses a whole server-side apply with
// one such member, so an agent that is newer than the CRDs would write no status at all.
func dropUndeclared(object map[string]any, answer error) (dropped []string) {
	if answer == nil {
		return nil
	}
	for _, m := range undeclared.FindAllStringSubmatch(answer.Error(), -1) {
		path := selector.ReplaceAllString(m[1], "")
		if !slices.Contains(dropped, path) && dropMember(object, strings.Split(path, ".")) {
			dropped = append(dropped, path)
		}
	}
	return dropped
}

// dropMember removes a member by its path, from every element of a list on the way.
func dropMember(v any, path []string) (found bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			found = dropMember(x, path) || found
		}
	case map[string]any:
		next, is := v[path[0]]
		if !is {
			return false
		}
		if len(path) > 1 {
			return dropMember(next, path[1:])
		}
		delete(v, path[0])
		return true
	}
	return found
}
