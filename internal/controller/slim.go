package controller

import (
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// slimNode drops large fields that no reconciler reads, and lets Nodes share equal
// strings.
func slimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	n.ManagedFields = nil
	st := &n.Status
	*st = corev1.NodeStatus{Conditions: st.Conditions, NodeInfo: st.NodeInfo, Addresses: st.Addresses}
	for i := range st.Conditions {
		c := &st.Conditions[i]
		internStrings((*string)(&c.Type), (*string)(&c.Status), &c.Reason, &c.Message)
	}
	i := &st.NodeInfo
	internStrings(&i.KernelVersion, &i.OSImage, &i.ContainerRuntimeVersion, &i.KubeletVersion, &i.OperatingSystem, &i.Architecture)
	n.Labels, n.Annotations = internMap(n.Labels), internMap(n.Annotations)
	return n, nil
}

// internStrings makes equal texts one.
func internStrings(texts ...*string) {
	for _, t := range texts {
		*t = unique.Make(*t).Value()
	}
}

// internMap are labels or annotations whose keys are shared; of the values those
// that are short, which are often the same.
func internMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		internStrings(&k)
		if len(v) < 32 {
			internStrings(&v)
		}
		out[k] = v
	}
	return out
}

// nodeUpdates are read as they come when there is one for each of many nodes: at
// the start nothing moves until all of them are known.
var nodeUpdates = streamedKind[*v1alpha1.NodeUpdate]{
	Version: v1alpha1.GroupVersion, Resource: "nodeupdates", Namespace: v1alpha1.NodesNamespace,
	New:  func() *v1alpha1.NodeUpdate { return &v1alpha1.NodeUpdate{} },
	Slim: slim,
}

// slimUpdate lets NodeUpdates share equal strings: the key of a node is in the NodeUpdates
// of its peers, and thousands have the name of the same pin set.
func slimUpdate(o any) (any, error) {
	if nu, ok := o.(*v1alpha1.NodeUpdate); ok && nu.ManagedFields != nil { // else it is slim already
		slim(nu)
	}
	return o, nil
}

func slim(nu *v1alpha1.NodeUpdate) {
	nu.ManagedFields = nil
	texts := []*string{&nu.Spec.Trust, &nu.Spec.Pins, &nu.Spec.Config, &nu.Status.Message, &nu.Status.Phase}
	for i := range nu.Spec.Bundles {
		texts = append(texts, &nu.Spec.Bundles[i].Digest, &nu.Spec.Bundles[i].Name)
	}
	for i := range nu.Spec.Peers {
		texts = append(texts, &nu.Spec.Peers[i].Node, &nu.Spec.Peers[i].Address, &nu.Spec.Peers[i].PublicKey)
	}
	for i := range nu.Status.Conditions {
		c := &nu.Status.Conditions[i]
		texts = append(texts, &c.Type, &c.Reason, &c.Message)
	}
	for i := range nu.Status.Bundles {
		texts = append(texts, &nu.Status.Bundles[i])
	}
	if a := nu.Status.Agent; a != nil {
		texts = append(texts, &a.Address, &a.PublicKey, &a.Version)
	}
	if h := nu.Status.Pins; h != nil {
		texts = append(texts, &h.Content)
	}
	internStrings(texts...)
}
