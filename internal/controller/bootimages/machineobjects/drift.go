package machineobjects

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// DriftHeld reports whether every Karpenter NodePool that uses a node class always prevents
// replacement because of drift. Without a NodePool nothing is replaced either; a NodePool that
// cannot be read counts as one that replaces machines.
func (k *Kinds) DriftHeld(ctx context.Context, class string) bool {
	l := k.List(ctx, "karpenter.sh", "NodePool", []string{"v1"})
	if l.Err != nil {
		return false
	}
	for _, p := range l.Items {
		name, _, _ := unstructured.NestedString(p.Object, "spec", "template", "spec", "nodeClassRef", "name")
		if name == class && !poolHoldsDrift(p) {
			return false
		}
	}
	return true
}

func poolHoldsDrift(p *unstructured.Unstructured) bool {
	budgets, _, _ := unstructured.NestedSlice(p.Object, "spec", "disruption", "budgets")
	for _, b := range budgets {
		m, _ := b.(map[string]any)
		if _, scheduled := m["schedule"]; scheduled || m["nodes"] != "0" && m["nodes"] != "0%" {
			continue
		}
		reasons, ok := m["reasons"].([]any)
		if !ok || len(reasons) == 0 {
			return true
		}
		for _, r := range reasons {
			if r == "Drifted" {
				return true
			}
		}
	}
	return false
}
