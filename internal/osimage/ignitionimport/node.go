package ignitionimport

import (
	"fmt"
	"sort"
)

// node is an object of a document. What is read of it is taken out; rest names
// what is left then. A value of another kind than expected is left and named.
type node struct {
	r  *reader
	at string
	m  map[string]any
}

func (n node) path(key string) string {
	if n.at == "" {
		return key
	}
	return n.at + "." + key
}

func (n node) has(key string) bool { return n.m[key] != nil }

// take takes keys out that mean nothing here.
func (n node) take(keys ...string) {
	for _, k := range keys {
		delete(n.m, k)
	}
}

// odd names a value of an unexpected kind, and not the value.
func (n node) odd(key string, v any) {
	if v != nil {
		n.r.left(n.path(key), fmt.Sprintf("it should not be a %T", v))
	}
	n.take(key)
}

func (n node) object(key string) node {
	m, ok := n.m[key].(map[string]any)
	if !ok {
		n.odd(key, n.m[key])
		m = map[string]any{}
	}
	if len(m) == 0 {
		n.take(key)
	}
	return node{n.r, n.path(key), m}
}

func (n node) list(key string) []node {
	items, ok := n.m[key].([]any)
	if !ok {
		n.odd(key, n.m[key])
		return nil
	}
	n.take(key)
	var out []node
	for i, v := range items {
		at := fmt.Sprintf("%s[%d]", n.path(key), i)
		if m, ok := v.(map[string]any); ok {
			out = append(out, node{n.r, at, m})
		} else {
			n.r.left(at, fmt.Sprintf("it should not be a %T", v))
		}
	}
	return out
}

func (n node) text(key string) string {
	s, ok := n.m[key].(string)
	if !ok {
		n.odd(key, n.m[key])
	}
	n.take(key)
	return s
}

func (n node) texts(key string) []string {
	items, ok := n.m[key].([]any)
	if !ok {
		n.odd(key, n.m[key])
	}
	n.take(key)
	var out []string
	for i, v := range items {
		if s, ok := v.(string); ok {
			out = append(out, s)
		} else {
			n.r.left(fmt.Sprintf("%s[%d]", n.path(key), i), fmt.Sprintf("it should not be a %T", v))
		}
	}
	return out
}

func (n node) number(key string) (int, bool) {
	v, ok := n.m[key].(int)
	if !ok {
		n.odd(key, n.m[key])
	}
	n.take(key)
	return v, ok
}

// truth of a key, and whether it is said at all.
func (n node) truth(key string) (is, said bool) {
	is, said = n.m[key].(bool)
	if !said {
		n.odd(key, n.m[key])
	}
	n.take(key)
	return is, said
}

// rest names every key that nobody took. Objects that were emptied are nothing.
func (n node) rest(why string) {
	keys := make([]string, 0, len(n.m))
	for k := range n.m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if v := n.m[k]; v != nil && !empty(v) {
			n.r.left(n.path(k), why)
		}
		delete(n.m, k)
	}
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			if x != nil && !empty(x) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return false
}
