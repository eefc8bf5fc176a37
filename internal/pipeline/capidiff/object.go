package capidiff

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Roles of the objects in a request.
const (
	Machine        = "machine"        // Machine or MachineSet
	Infrastructure = "infrastructure" // the infrastructure provider's machine or template
	Bootstrap      = "bootstrap"      // KubeadmConfig or its template
)

// PathVersion is the field of the Kubernetes version, the only one whose value
// is itself and not a digest.
const PathVersion = Machine + "/spec/version"

// machineFields are those of a Machine's spec that Cluster API compares; the
// rest is set by its controllers or moved by them in place.
var machineFields = []string{"version", "failureDomain"}

// Object is one object of a request as it is and as it is to be.
type Object struct {
	Role string
	// Spec is where the compared part is: spec, or spec/template/spec of the
	// objects of a set.
	Spec             []string
	Current, Desired map[string]any
}

// Spec of a machine's own objects, and of the templates of a set.
var (
	SpecOfMachine  = []string{"spec"}
	SpecOfTemplate = []string{"spec", "template", "spec"}
)

// Differences lists the fields in which current is not as desired, by path. Fields outside
// the compared part are no difference.
func Differences(o Object) []model.Change {
	w := walk{}
	cur, des := o.specs()
	w.value(o.Role+"/spec", cur, des)
	sort.Slice(w.changes, func(i, j int) bool { return w.changes[i].Path < w.changes[j].Path })
	return w.changes
}

// Move returns the current object with the claimed fields as desired. The result shares
// unchanged parts with its inputs: callers must not write to it.
func Move(o Object, claimed map[string]bool) map[string]any {
	w := walk{claimed: claimed}
	cur, des := o.specs()
	moved := w.value(o.Role+"/spec", cur, des)
	if same(cur, moved) {
		return o.Current
	}
	return graft(o.Current, o.Spec, o.merge(moved))
}

// absent stands for a key that is not there; null is a value of its own.
type absent struct{}

func (o Object) specs() (cur, des any) {
	return o.compared(dig(o.Current, o.Spec)), o.compared(dig(o.Desired, o.Spec))
}

// compared is the part of a spec that is compared.
func (o Object) compared(spec any) any {
	m, ok := spec.(map[string]any)
	if o.Role != Machine || !ok {
		return spec
	}
	out := map[string]any{}
	for _, f := range machineFields {
		if v, there := m[f]; there {
			out[f] = v
		}
	}
	return out
}

// merge puts the moved part back among the parts that are not compared.
func (o Object) merge(moved any) any {
	m, ok := moved.(map[string]any)
	if o.Role != Machine || !ok {
		return moved
	}
	out := map[string]any{}
	if whole, ok := dig(o.Current, o.Spec).(map[string]any); ok {
		for k, v := range whole {
			if !slices.Contains(machineFields, k) {
				out[k] = v
			}
		}
	}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func dig(o map[string]any, at []string) any {
	var v any = o
	for _, key := range at {
		m, ok := v.(map[string]any)
		if !ok {
			return absent{}
		}
		if v, ok = m[key]; !ok {
			return absent{}
		}
	}
	return v
}

// graft returns o with another value at a place.
func graft(o map[string]any, at []string, v any) map[string]any {
	out := map[string]any{}
	for k, x := range o {
		out[k] = x
	}
	if len(at) > 1 {
		below, _ := o[at[0]].(map[string]any)
		v = graft(below, at[1:], v)
	}
	if _, gone := v.(absent); gone {
		delete(out, at[0])
	} else {
		out[at[0]] = v
	}
	return out
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// fieldValue is what a difference says of a value: nothing of its content,
// unless it is a version.
func fieldValue(path string, v any) string {
	if _, gone := v.(absent); gone {
		return ""
	}
	if s, ok := v.(string); ok && path == PathVersion {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // decoded JSON can be encoded
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// segment escapes a key like a JSON pointer does.
func segment(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
