package kubelet

import (
	"reflect"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// firstDifference names the first field of want that differs in have, "" if none does. The
// kubelet writes durations and quantities in its own way.
func firstDifference(at string, want, have any) string {
	w, ok := want.(map[string]any)
	if !ok {
		if sameValue(want, have) {
			return ""
		}
		return at
	}
	h, _ := have.(map[string]any)
	names := make([]string, 0, len(w))
	for k := range w {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		deeper := k
		if at != "" {
			deeper = at + "." + k
		}
		if field := firstDifference(deeper, w[k], h[k]); field != "" {
			return field
		}
	}
	return ""
}

func sameValue(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, ok1 := a.(string)
	y, ok2 := b.(string)
	if !ok1 || !ok2 {
		return false
	}
	if dx, err := time.ParseDuration(x); err == nil {
		dy, err := time.ParseDuration(y)
		return err == nil && dx == dy
	}
	qx, err1 := resource.ParseQuantity(x)
	qy, err2 := resource.ParseQuantity(y)
	return err1 == nil && err2 == nil && qx.Cmp(qy) == 0
}
