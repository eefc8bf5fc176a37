package bootimage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Marks that refit puts on a clone; the words of the API.
const (
	labelSource      = "refit.dev/boot-image-source"
	annotationCloned = "refit.dev/cloned-from"
	labelManagedBy   = "app.kubernetes.io/managed-by"
	managedBy        = "refit-controller"
)

// notInherited are beginnings of labels and annotations by which other tools know
// what is theirs: a clone is not theirs, and they would prune it.
var notInherited = []string{"argocd.argoproj.io/", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
	"meta.helm.sh/", "helm.sh/", "kubectl.kubernetes.io/", "refit.dev/"}

// baseLength leaves room for the hash in a name that is also a label's value.
const baseLength = 50

// Clone makes a new template of an old one whose spec has the wanted image
// already. Its name holds the hash of what it is, so that a second attempt makes
// the same one. source is the UID of the MachineSource it is for.
func Clone(edited map[string]any, source string) (map[string]any, error) {
	meta, _ := edited["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	base := name
	if from, ok := Mark(edited, "annotations", annotationCloned); ok {
		base = from
	}
	if base == "" {
		return nil, fmt.Errorf("the template has no name")
	}
	labels, annotations := inherit(meta["labels"]), inherit(meta["annotations"])
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

// inherit copies what is not somebody's mark.
func inherit(v any) map[string]any {
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

// hashOf: what is the same has the same name. JSON of Go sorts keys.
func hashOf(parts ...any) (string, error) {
	raw, err := json.Marshal(parts)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:10], nil
}

// Mark reads a label or annotation of an object.
func Mark(o map[string]any, where, key string) (string, bool) {
	meta, _ := o["metadata"].(map[string]any)
	m, _ := meta[where].(map[string]any)
	v, ok := m[key].(string)
	return v, ok
}

// Ours reports whether refit made a template, and for which source.
func Ours(o map[string]any) (source string, ok bool) {
	by, _ := Mark(o, "labels", labelManagedBy)
	source, ok = Mark(o, "labels", labelSource)
	return source, ok && by == managedBy
}
