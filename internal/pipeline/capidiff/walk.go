package capidiff

import (
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// walk goes through two versions of an object at once. It notes every difference
// and builds the version in which the claimed ones are moved.
type walk struct {
	claimed map[string]bool
	changes []model.Change
}

func (w *walk) value(path string, cur, des any) any {
	if same(cur, des) {
		return cur
	}
	if c, d, ok := objects(cur, des); ok {
		return w.object(path, c, d, cur, des)
	}
	if cl, dl, key := lists(cur, des); key != "" {
		return w.list(path, cl, dl, key, cur, des)
	}
	return w.leaf(path, cur, des)
}

func (w *walk) leaf(path string, cur, des any) any {
	w.changes = append(w.changes, model.Change{Path: path, From: fieldValue(path, cur), To: fieldValue(path, des)})
	if w.claimed[path] {
		return des
	}
	return cur
}

// object compares two objects key by key. A missing object counts as one without keys, so
// that each key is named. It stays missing in the result until everything left is as
// desired.
func (w *walk) object(path string, cur, des map[string]any, curWhole, desWhole any) any {
	out := map[string]any{}
	for _, key := range keys(cur, des) {
		c, d := at(cur, key), at(des, key)
		v := w.value(path+"/"+segment(key), c, d)
		if _, gone := v.(absent); !gone {
			out[key] = v
		}
	}
	_, wasNone := curWhole.(absent)
	_, isNone := desWhole.(absent)
	if len(out) == 0 && (wasNone || isNone) {
		return absent{}
	}
	return out
}

// objects reports whether both values are objects, or one is and the other is not
// there. An empty object against none is a difference of its own.
func objects(cur, des any) (c, d map[string]any, ok bool) {
	c, curMap := cur.(map[string]any)
	d, desMap := des.(map[string]any)
	_, curNone := cur.(absent)
	_, desNone := des.(absent)
	return c, d, (curMap || curNone) && (desMap || desNone) && (curMap && desMap || len(c)+len(d) > 0)
}

// list compares lists whose items have a name: one that is added, changed or
// taken away is a field of its own, named by it. Once something of a list is
// moved it has the desired order.
func (w *walk) list(path string, cur, des []any, key string, curWhole, desWhole any) any {
	was, is := byKey(cur, key), byKey(des, key)
	if sameItems(was, is) { // another order, or an empty list instead of none
		return w.leaf(path, curWhole, desWhole)
	}
	out := []any{}
	moved := false
	item := func(name string) {
		c, d := at(was, name), at(is, name)
		v := c
		if !same(c, d) {
			v = w.leaf(path+"["+segment(name)+"]", c, d)
			moved = moved || w.claimed[path+"["+segment(name)+"]"]
		}
		if _, gone := v.(absent); !gone {
			out = append(out, v)
		}
	}
	for _, d := range des {
		item(nameOf(d, key))
	}
	for _, c := range cur {
		if _, stays := is[nameOf(c, key)]; !stays {
			item(nameOf(c, key))
		}
	}
	switch _, none := desWhole.(absent); {
	case !moved:
		return curWhole
	case none && len(out) == 0:
		return absent{}
	}
	return out
}

// lists reports whether both values are lists of named items, or one is and the
// other is not there, and by which key their items are named.
func lists(cur, des any) (c, d []any, key string) {
	c, curList := cur.([]any)
	d, desList := des.([]any)
	_, curNone := cur.(absent)
	_, desNone := des.(absent)
	if (!curList && !curNone) || (!desList && !desNone) || len(c)+len(d) == 0 {
		return nil, nil, ""
	}
	for _, key := range []string{"path", "name"} {
		if named(c, key) && named(d, key) {
			return c, d, key
		}
	}
	return nil, nil, ""
}

// named reports whether every item has its own value of key.
func named(list []any, key string) bool {
	seen := map[string]bool{}
	for _, item := range list {
		n := nameOf(item, key)
		if n == "" || seen[n] {
			return false
		}
		seen[n] = true
	}
	return true
}

func nameOf(item any, key string) string {
	m, _ := item.(map[string]any)
	s, _ := m[key].(string)
	return s
}

func byKey(list []any, key string) map[string]any {
	out := map[string]any{}
	for _, item := range list {
		out[nameOf(item, key)] = item
	}
	return out
}

func sameItems(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if !same(a[name], at(b, name)) {
			return false
		}
	}
	return true
}

func at(m map[string]any, key string) any {
	if v, ok := m[key]; ok {
		return v
	}
	return absent{}
}

// keys of both, sorted, each once.
func keys(a, b map[string]any) []string {
	var out []string
	for k := range a {
		out = append(out, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}
