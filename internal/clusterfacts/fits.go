package clusterfacts

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Among returns the rules with the cluster's nodes, to find pods that fit on no other node.
func (r Rules) Among(nodes []*corev1.Node) Rules {
	r.nodes = nodes
	return r
}

// fitsNowhere reports whether no other node can take a pod by nodeSelector, taints and cordons.
// The scheduler checks more, so the result is never true for a pod that fits.
func (r Rules) fitsNowhere(p *corev1.Pod) bool {
	if len(r.nodes) == 0 {
		return false
	}
	for _, n := range r.nodes {
		if n.Name != p.Spec.NodeName && fits(p, n) {
			return false
		}
	}
	return true
}

func fits(p *corev1.Pod, n *corev1.Node) bool {
	if n.Spec.Unschedulable {
		return false
	}
	for k, v := range p.Spec.NodeSelector {
		if have, ok := n.Labels[k]; !ok || have != v {
			return false
		}
	}
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(p.Spec.Tolerations, func(o corev1.Toleration) bool { return tolerates(o, t) })
	})
}

// tolerates reports whether a toleration matches a taint. An unknown operator matches.
func tolerates(o corev1.Toleration, t corev1.Taint) bool {
	switch {
	case o.Effect != "" && o.Effect != t.Effect, o.Key != "" && o.Key != t.Key:
		return false
	case o.Operator == "" || o.Operator == corev1.TolerationOpEqual:
		return o.Key != "" && o.Value == t.Value
	}
	return true
}
