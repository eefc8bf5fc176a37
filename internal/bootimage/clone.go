package bootimage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Labels and annotations of a clone, as the API documents them.
const (
	labelSource      = "refit.dev/boot-image-source"
	annotationCloned = "refit.dev/cloned-from"
	labelManagedBy   = "app.kubernetes.io/managed-by"
	managedBy        = "refit-controller"
)

// notInherited are prefixes of labels and annotations with which other tools mark their
// objects. With such a mark they would prune the clone.
var notInherited = []string{"argocd.argoproj.io/", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
	"meta.helm.sh/", "helm.sh/", "kubectl.kubernetes.io/", "refit.dev/"}

// baseLength leaves room for the hash in a name that is also a label's value.
const baseLength = 50

// Clone returns a new template from an edited one whose spec has the wanted image. The name
// has the hash of the content, so a second attempt creates the same object. source is the
// UID of its MachineSource.
func Clone(edited map[string]any, source string) (map[string]any, error) {
	meta, _ := edited["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	base := name
	if from, ok := MetadataValue(edited, "annotations", annotationCloned); ok {
		base = from
	}
	if base == "" {
		return nil, fmt.Errorf("the template has no name")
	}
	labels, annotations := inheritMetadata(meta["labels"]), inheritMetadata(meta["annotations"])
	labels[labelSource], labels[labelManagedBy] = source, managedBy
	annotations[annotationCloned] = base
	out := map[string]any{"apiVersion": edited["apiVersion"], "kind": edited["kind"], "spec": edited["spec"]}
	hash, err := hashOf(edited["kind"], edited["spec"], labels)
	if err != nil {
		return nil, err
	}
	if len(base) > baseLength {
		base = strings.TrimRight(base[:baseLength], "-.")
	}
	m := map[string]any{"name": base + "-" + hash, "labels": labels, "annotations": annotations}
	if ns, ok := meta["namespace"]; ok {
		m["namespace"] = ns
	}
	out["metadata"] = m
	return out, nil
}

// inheritMetadata copies all keys but the marks of other tools.
func inheritMetadata(v any) map[string]any {
	out := map[string]any{}
	in, _ := v.(map[string]any)
next:
	for k, x := range in {
		for _, p := range notInherited {
			if strings.HasPrefix(k, p) {
				continue next
			}
		}
		out[k] = x
	}
	return out
}

// hashOf returns the same hash for equal content, because encoding/json sorts keys.
func hashOf(parts ...any) (string, error) {
	raw, err := json.Marshal(parts)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:10], nil
}

// MetadataValue returns a label or annotation of an object.
func MetadataValue(o map[string]any, where, key string) (string, bool) {
	meta, _ := o["metadata"].(map[string]any)
	m, _ := meta[where].(map[string]any)
	v, ok := m[key].(string)
	return v, ok
}

// CloneSource returns the MachineSource of a template that refit created.
func CloneSource(o map[string]any) (source string, ok bool) {
	by, _ := MetadataValue(o, "labels", labelManagedBy)
	source, ok = MetadataValue(o, "labels", labelSource)
	return source, ok && by == managedBy
}

// ContainsFields reports whether an object has all wanted fields: the API server may have added
// defaults.
func ContainsFields(there, want any) bool {
	m, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(there, want)
	}
	t, ok := there.(map[string]any)
	if !ok {
		return false
	}
	for k, v := range m {
		if !ContainsFields(t[k], v) {
			return false
		}
	}
	return true
}
