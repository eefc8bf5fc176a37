package capidiff

import (
	"bytes"
	"encoding/json"
)

// operation of an RFC 6902 patch.
type operation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value is a pointer to tell null from absent.
	Value *any `json:"value,omitempty"`
}

// Patch is the RFC 6902 patch that turns one object into another. changed is false if they
// are the same; then a hook must return no patch, because its caller refuses an empty one.
func Patch(before, after map[string]any) (patch []byte, changed bool) {
	var ops []operation
	diff("", before, after, &ops)
	if len(ops) == 0 {
		return nil, false
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(ops); err != nil {
		panic(err) // decoded JSON can be encoded
	}
	return bytes.TrimSpace(b.Bytes()), true
}

// diff goes into maps; a list is replaced as a whole, so that no operation
// depends on an index.
func diff(path string, before, after map[string]any, ops *[]operation) {
	for _, key := range keys(before, after) {
		b, a := at(before, key), at(after, key)
		p := path + "/" + segment(key)
		bm, bok := b.(map[string]any)
		am, aok := a.(map[string]any)
		switch {
		case same(b, a):
		case bok && aok:
			diff(p, bm, am, ops)
		case isAbsent(a):
			*ops = append(*ops, operation{Op: "remove", Path: p})
		case isAbsent(b):
			*ops = append(*ops, operation{Op: "add", Path: p, Value: &a})
		default:
			*ops = append(*ops, operation{Op: "replace", Path: p, Value: &a})
		}
	}
}

func isAbsent(v any) bool {
	_, ok := v.(absent)
	return ok
}
