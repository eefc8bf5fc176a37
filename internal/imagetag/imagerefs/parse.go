package imagerefs

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxSize of one file in bytes.
	MaxSize = 32 << 20
	// maxValues of one file: values need memory far beyond their text. maxDepth of nesting.
	maxValues = 3_000_000
	maxDepth  = 200
)

// value is a node of a document without aliases and merge keys.
type value struct {
	line int
	// text of a scalar; isText only for strings.
	text   string
	isText bool
	// keys and fields of an object, in order; items of a list.
	keys   []string
	fields []*value
	items  []*value
}

// get returns the value of a field below an object, nil if it is not there.
func (v *value) get(path ...string) *value {
	for _, key := range path {
		v = v.field(key)
	}
	return v
}

func (v *value) field(key string) *value {
	if v == nil {
		return nil
	}
	for i, k := range v.keys {
		if k == key {
			return v.fields[i]
		}
	}
	return nil
}

// str is a string below an object, "" if there is none.
func (v *value) str(path ...string) string {
	if v = v.get(path...); v == nil || !v.isText {
		return ""
	}
	return v.text
}

// scalar is a scalar below an object as text, also a number.
func (v *value) scalar(path ...string) string {
	if v = v.get(path...); v == nil {
		return ""
	}
	return v.text
}

// parse reads all documents of a file.
func parse(data []byte) ([]*value, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%d bytes, more than the %d allowed for manifests: split it", len(data), MaxSize)
	}
	if n := separators(data); n > maxValues {
		return nil, fmt.Errorf("about %d values, more than the %d allowed for manifests: split it", n, maxValues)
	}
	var out []*value
	c := converter{left: maxValues}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		v, err := c.convert(&doc, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
}

// separators counts the characters that end or begin a value: no text has more values.
func separators(data []byte) (n int) {
	for _, b := range data {
		switch b {
		case '\n', ',', ':', '[', '{':
			n++
		}
	}
	return n
}

// converter bounds what aliases expand to.
type converter struct{ left int }

func (c *converter) convert(n *yaml.Node, depth int) (*value, error) {
	if c.left--; c.left < 0 {
		return nil, fmt.Errorf("line %d: more than %d values, aliases included", n.Line, maxValues)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("line %d: nested more than %d deep", n.Line, maxDepth)
	}
	v := &value{line: n.Line}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return v, nil
		}
		return c.convert(n.Content[0], depth+1)
	case yaml.AliasNode:
		return c.convert(n.Alias, depth+1)
	case yaml.ScalarNode:
		v.text, v.isText = n.Value, n.Tag == "!!str"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			x, err := c.convert(item, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, x)
		}
	case yaml.MappingNode:
		return v, c.mapping(v, n, depth)
	}
	return v, nil
}

// mapping converts an object; fields of merge keys come after its own.
func (c *converter) mapping(v *value, n *yaml.Node, depth int) error {
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Tag == "!!merge" {
			merged = append(merged, n.Content[i+1])
			continue
		}
		if key.Kind != yaml.ScalarNode { // also {{ ... }} of a template, which would hide an image
			return fmt.Errorf("line %d: a key that is not a text", key.Line)
		}
		x, err := c.convert(n.Content[i+1], depth+1)
		if err != nil {
			return err
		}
		v.keys, v.fields = append(v.keys, key.Value), append(v.fields, x)
	}
	for _, m := range merged {
		x, err := c.convert(m, depth+1)
		if err != nil {
			return err
		}
		for _, from := range append([]*value{x}, x.items...) {
			v.merge(from)
		}
	}
	return nil
}

// merge takes the fields of another object that v does not have.
func (v *value) merge(from *value) {
	for i, k := range from.keys {
		if v.field(k) == nil {
			v.keys, v.fields = append(v.keys, k), append(v.fields, from.fields[i])
		}
	}
}
