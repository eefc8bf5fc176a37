package ignition

import (
	"fmt"
	"sort"
)

// configNode is an object of a document. What is read of it is taken out; rest names
// what is left then. A value of another kind than expected is left and named.
type configNode struct {
	r  *importer
	at string
	m  map[string]any
}

func (n configNode) path(key string) string {
	if n.at == "" {
		return key
	}
	return n.at + "." + key
}

func (n configNode) has(key string) bool { return n.m[key] != nil }

// consume takes keys out that mean nothing here.
func (n configNode) consume(keys ...string) {
	for _, k := range keys {
		delete(n.m, k)
	}
}

// reportType names a value of an unexpected kind, and not the value.
func (n configNode) reportType(key string, v any) {
	if v != nil {
		n.r.addNotImported(n.path(key), fmt.Sprintf("it should not be a %T", v))
	}
	n.consume(key)
}

func (n configNode) object(key string) configNode {
	m, ok := n.m[key].(map[string]any)
	if !ok {
		n.reportType(key, n.m[key])
		m = map[string]any{}
	}
	if len(m) == 0 {
		n.consume(key)
	}
	return configNode{n.r, n.path(key), m}
}

func (n configNode) list(key string) []configNode {
	items, ok := n.m[key].([]any)
	if !ok {
		n.reportType(key, n.m[key])
		return nil
	}
	n.consume(key)
	var out []configNode
	for i, v := range items {
		at := fmt.Sprintf("%s[%d]", n.path(key), i)
		if m, ok := v.(map[string]any); ok {
			out = append(out, configNode{n.r, at, m})
		} else {
			n.r.addNotImported(at, fmt.Sprintf("it should not be a %T", v))
		}
	}
	return out
}

func (n configNode) text(key string) string {
	s, ok := n.m[key].(string)
	if !ok {
		n.reportType(key, n.m[key])
	}
	n.consume(key)
	return s
}

func (n configNode) texts(key string) []string {
	items, ok := n.m[key].([]any)
	if !ok {
		n.reportType(key, n.m[key])
	}
	n.consume(key)
	var out []string
	for i, v := range items {
		if s, ok := v.(string); ok {
			out = append(out, s)
		} else {
			n.r.addNotImported(fmt.Sprintf("%s[%d]", n.path(key), i), fmt.Sprintf("it should not be a %T", v))
		}
	}
	return out
}

func (n configNode) number(key string) (int, bool) {
	v, ok := n.m[key].(int)
	if !ok {
		n.reportType(key, n.m[key])
	}
	n.consume(key)
	return v, ok
}

// boolean returns the value of a key, and whether it is set.
func (n configNode) boolean(key string) (is, said bool) {
	is, said = n.m[key].(bool)
	if !said {
		n.reportType(key, n.m[key])
	}
	n.consume(key)
	return is, said
}

// reportRest reports every key that was not consumed. Objects that were emptied do not count.
func (n configNode) reportRest(why string) {
	keys := make([]string, 0, len(n.m))
	for k := range n.m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if v := n.m[k]; v != nil && !isEmptyValue(v) {
			n.r.addNotImported(n.path(k), why)
		}
		delete(n.m, k)
	}
}

func isEmptyValue(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			if x != nil && !isEmptyValue(x) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return false
}
