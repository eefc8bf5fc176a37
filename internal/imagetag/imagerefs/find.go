package imagerefs

import (
	"bytes"
	"fmt"
	"strings"
)

// maxRefs of one file.
const maxRefs = 100_000

// Object names a Kubernetes object. Namespace is empty if the object does not state one.
type Object struct{ Kind, Namespace, Name string }

// String is kind/namespace/name without empty parts.
func (o Object) String() string {
	var parts []string
	for _, s := range []string{o.Kind, o.Namespace, o.Name} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "/")
}

// Ref is one image reference and its place.
type Ref struct {
	// Image as the object has it, without a prefix docker://.
	Image string
	// Maybe: the text only resembles a reference.
	Maybe bool
	// Rule that found it (Rules lists them).
	Rule string
	// File and line of the reference. An object in the text of another has the line of that text.
	File string
	Line int
	Object
	// Path of the field in the object, for example spec.template.spec.containers[0].image.
	Path string
}

// Find returns the references in the objects of a file, in order. file is for the result and
// for messages.
func Find(file string, data []byte) ([]Ref, error) {
	docs, err := parse(data)
	if err != nil {
		hint := ""
		if bytes.Contains(data, []byte("{{")) {
			hint = " (a template of a chart? name the chart with chart:DIR)"
		}
		return nil, fmt.Errorf("manifests %s: %w%s", file, err, hint)
	}
	f := &finder{file: file, seen: map[*value]bool{}}
	for _, d := range docs {
		f.list(d)
	}
	if len(f.refs) > maxRefs {
		return nil, fmt.Errorf("manifests %s: more than %d references: split the file", file, maxRefs)
	}
	return f.refs, nil
}

// finder is the walk over the objects of one file.
type finder struct {
	file   string
	refs   []Ref
	object Object
	// seen are the values that a rule explained.
	seen map[*value]bool
	// line of the text that contains the object, 0 for an object of the file itself.
	line int
	// within counts the texts around the object.
	within int
	prefix string
}

// list takes lists apart: every kind that ends in List and has items.
func (f *finder) list(v *value) {
	if items := v.field("items"); items != nil && strings.HasSuffix(v.str("kind"), "List") {
		for _, i := range items.items {
			f.list(i)
		}
		return
	}
	if v.str("kind") == "" || len(f.refs) > maxRefs {
		return
	}
	if f.within == 0 {
		f.object = Object{Kind: v.str("kind"), Namespace: v.str("metadata", "namespace"), Name: v.str("metadata", "name")}
	}
	// The status repeats the specification, and lists what a node has.
	if status := v.field("status"); status != nil {
		f.seen[status] = true
	}
	if managed := v.get("metadata", "managedFields"); managed != nil {
		f.seen[managed] = true
	}
	first := len(f.refs)
	f.embedded(v, f.prefix)
	f.candidates(v, f.prefix, "")
	sortByPlace(f.refs[first:])
}

// add notes a reference that a rule found. A value belongs to the first rule that finds it.
func (f *finder) add(v *value, path, image, rule string, maybe bool) {
	if v == nil || f.seen[v] || len(f.refs) > maxRefs {
		return
	}
	f.seen[v] = true
	f.append(v, path, image, rule, maybe)
}

func (f *finder) append(v *value, path, image, rule string, maybe bool) {
	if image = strings.TrimSpace(image); image == "" {
		return
	}
	r := Ref{Image: image, Maybe: maybe, Rule: rule, File: f.file, Line: v.line, Object: f.object, Path: path}
	if f.line > 0 {
		r.Line = f.line
	}
	f.refs = append(f.refs, r)
}

// embedded applies the rules for the kind of an object, then those for all kinds below it.
func (f *finder) embedded(v *value, path string) {
	f.kindRules(v, path)
	f.walk(v, path)
}

// walk applies the rules that hold wherever a field stands.
func (f *finder) walk(v *value, path string) {
	if f.seen[v] {
		return
	}
	for i, item := range v.items {
		f.walkInto(item, fmt.Sprintf("%s[%d]", path, i))
	}
	for i, key := range v.keys {
		at := join(path, key)
		f.fieldRules(key, v.fields[i], at)
		f.walkInto(v.fields[i], at)
	}
}

// walkInto follows a value; one that is an object of its own kind gets that kind's rules too.
func (f *finder) walkInto(v *value, path string) {
	if v.str("apiVersion") != "" && v.str("kind") != "" {
		f.embedded(v, path)
		return
	}
	f.walk(v, path)
}

// plainKey are the characters of keys that need no quotes.
const plainKey = "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// join appends a key to a field path; a key with other characters is quoted.
func join(path, key string) string {
	if strings.Trim(key, plainKey) != "" {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}
