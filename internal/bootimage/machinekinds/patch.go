package machinekinds

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Op is one operation of a JSON patch (RFC 6902).
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Edit collects the operations that make an object what it should be, and makes
// them on a copy as well.
type Edit struct {
	// Object after the edit.
	Object map[string]any
	// prefix of pointers: where Object stands in what is patched.
	prefix string
	ops    []Op
}

// NewEdit begins with a copy of an object.
func NewEdit(o map[string]any) *Edit { return &Edit{Object: clone(o).(map[string]any)} }

// Within is an edit of a part of what e edits.
func (e *Edit) within(root map[string]any, pointer string) *Edit {
	return &Edit{Object: root, prefix: pointer}
}

// Changed reports whether anything is to be written.
func (e *Edit) Changed() bool { return len(e.ops) > 0 }

// Ops to write: before each change what was there is tested.
func (e *Edit) Ops() []Op { return e.ops }

// JSON of the patch, behind a test of the object's resourceVersion if one is
// given.
func (e *Edit) JSON(resourceVersion string) ([]byte, error) {
	ops := e.ops
	if resourceVersion != "" {
		ops = append([]Op{{Op: "test", Path: "/metadata/resourceVersion", Value: resourceVersion}}, ops...)
	}
	return json.Marshal(ops)
}

// Set puts a value at a path; objects on the way are made, lists are not.
func (e *Edit) Set(at string, value any) error {
	p, err := parsePath(at)
	if err != nil {
		return err
	}
	places, left := p.find(e.Object, "")
	if len(places) == 0 {
		return fmt.Errorf("there is no %s in the object", at)
	}
	for _, pl := range places {
		v := value
		for i := len(left) - 1; i >= 0; i-- {
			if left[i] == "" {
				return fmt.Errorf("there is no %s in the object", at)
			}
			v = map[string]any{left[i]: v}
		}
		e.put(pl, v)
	}
	return nil
}

func (e *Edit) put(pl place, v any) {
	old := pl.value()
	switch {
	case pl.missing:
		e.ops = append(e.ops, Op{Op: "add", Path: e.prefix + pl.pointer, Value: clone(v)})
	case reflect.DeepEqual(old, v):
		return
	default:
		e.ops = append(e.ops, Op{Op: "test", Path: e.prefix + pl.pointer, Value: clone(old)}, Op{Op: "replace", Path: e.prefix + pl.pointer, Value: clone(v)})
	}
	pl.parent[pl.key] = v
}

// Clear takes away what is at a path, if there is something.
func (e *Edit) Clear(at string) error {
	p, err := parsePath(at)
	if err != nil {
		return err
	}
	places, left := p.find(e.Object, "")
	for _, pl := range places {
		if len(left) > 0 || pl.missing {
			continue
		}
		e.ops = append(e.ops, Op{Op: "test", Path: e.prefix + pl.pointer, Value: clone(pl.value())}, Op{Op: "remove", Path: e.prefix + pl.pointer})
		delete(pl.parent, pl.key)
	}
	return nil
}

// clone of decoded JSON.
func clone(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, x := range t {
			out[k] = clone(x)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = clone(x)
		}
		return out
	}
	return v
}
