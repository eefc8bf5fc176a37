package machinekinds

import (
	"fmt"
	"strconv"
	"strings"
)

// segment of a path: a key, and perhaps a choice among the items of the list
// that is there.
type segment struct {
	key string
	// list is "" for none, "only" for a list of one item, "match" for the items
	// whose field has a value.
	list, field, value string
}

// path such as spec.disks[boot=true].image, spec.terms[only].id or
// metadata.labels["a.b/c"].
type path []segment

// parsePath reads a path.
func parsePath(text string) (path, error) {
	var out path
	rest := text
	for rest != "" {
		s, left, err := nextSegment(rest)
		if err != nil {
			return nil, fmt.Errorf("path %q: %w", text, err)
		}
		out, rest = append(out, s...), left
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("path %q is empty", text)
	}
	return out, nil
}

func nextSegment(rest string) ([]segment, string, error) {
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		return []segment{{key: rest}}, "", nil
	}
	key := rest[:end]
	if key == "" {
		return nil, "", fmt.Errorf("a name is missing before %q", rest)
	}
	if rest[end] == '.' {
		return []segment{{key: key}}, rest[end+1:], trailing(rest[end+1:])
	}
	inside, after, ok := strings.Cut(rest[end+1:], "]")
	if !ok {
		return nil, "", fmt.Errorf("%q has no ]", rest)
	}
	after = strings.TrimPrefix(after, ".")
	switch {
	case strings.HasPrefix(inside, `"`):
		quoted, err := strconv.Unquote(inside)
		return []segment{{key: key}, {key: quoted}}, after, err
	case inside == "only":
		return []segment{{key: key, list: "only"}}, after, nil
	}
	field, value, ok := strings.Cut(inside, "=")
	if !ok || field == "" {
		return nil, "", fmt.Errorf("[%s] is neither [only], [field=value] nor [\"key\"]", inside)
	}
	return []segment{{key: key, list: "match", field: field, value: value}}, after, nil
}

func trailing(s string) error {
	if s == "" {
		return fmt.Errorf("a name is missing at the end")
	}
	return nil
}

// place is one value that a path leads to.
type place struct {
	pointer string
	// parent holds the value under key; missing is true if it does not.
	parent  map[string]any
	key     string
	missing bool
}

func (p place) value() any { return p.parent[p.key] }

// find follows a path. Where a key is missing the place is its first missing
// parent, with the keys that are left; lists are never made.
func (p path) find(root map[string]any, pointer string) ([]place, []string) {
	seg := p[0]
	at := pointer + "/" + escape(seg.key)
	v, there := root[seg.key]
	if len(p) == 1 && seg.list == "" {
		return []place{{pointer: at, parent: root, key: seg.key, missing: !there}}, nil
	}
	if seg.list != "" {
		return p.items(v, at), nil
	}
	next, ok := v.(map[string]any)
	if !there || v == nil {
		return []place{{pointer: at, parent: root, key: seg.key, missing: true}}, p[1:].keys()
	}
	if !ok {
		return nil, nil
	}
	return p[1:].find(next, at)
}

// items of a list that the first segment chooses.
func (p path) items(v any, at string) []place {
	list, _ := v.([]any)
	seg := p[0]
	if seg.list == "only" && len(list) != 1 || len(p) == 1 {
		return nil
	}
	var out []place
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok || seg.list == "match" && text(m[seg.field]) != seg.value {
			continue
		}
		places, left := p[1:].find(m, at+"/"+strconv.Itoa(i))
		if len(left) > 0 {
			continue // an item is as it is: nothing is built within it
		}
		out = append(out, places...)
	}
	return out
}

func (p path) keys() []string {
	var out []string
	for _, s := range p {
		if s.list != "" {
			return []string{""} // a list cannot be made
		}
		out = append(out, s.key)
	}
	return out
}

// escape a key for a JSON pointer.
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// text of a scalar, empty for what is none.
func text(v any) string {
	switch t := v.(type) {
	case nil, map[string]any, []any:
		return ""
	case string:
		return t
	default:
		return fmt.Sprint(t)
	}
}

// Lookup returns the text at a path, empty if there is none or more than one
// that differ.
func Lookup(root map[string]any, at string) string {
	p, err := parsePath(at)
	if err != nil {
		return ""
	}
	places, left := p.find(root, "")
	out := ""
	for _, pl := range places {
		if pl.missing || len(left) > 0 {
			return ""
		}
		v := text(pl.value())
		if out != "" && v != out {
			return ""
		}
		out = v
	}
	return out
}

// filled reports whether there is something at a path that is no empty text.
func filled(root map[string]any, at string) bool {
	p, err := parsePath(at)
	if err != nil {
		return false
	}
	places, left := p.find(root, "")
	return len(places) > 0 && len(left) == 0 && !places[0].missing && places[0].value() != ""
}

// exists reports whether there is something at a path.
func exists(root map[string]any, at string) bool {
	p, err := parsePath(at)
	if err != nil {
		return false
	}
	places, left := p.find(root, "")
	return len(places) > 0 && len(left) == 0 && !places[0].missing
}
