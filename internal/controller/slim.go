package controller

import (
	"hash/maphash"
	"sync/atomic"
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
	*st = corev1.NodeStatus{Conditions: slimConditions(st.Conditions), NodeInfo: st.NodeInfo, Addresses: st.Addresses, RuntimeHandlers: slimHandlers(st.RuntimeHandlers)}
	for i := range st.Conditions {
		c := &st.Conditions[i]
		internStrings((*string)(&c.Type), (*string)(&c.Status), &c.Reason, &c.Message)
	}
	i := &st.NodeInfo
	internStrings(&i.KernelVersion, &i.OSImage, &i.ContainerRuntimeVersion, &i.KubeletVersion, &i.OperatingSystem, &i.Architecture)
	n.Labels, n.Annotations = internMap(n.Labels), internMap(n.Annotations)
	return n, nil
}

// slimConditions returns the conditions that reconcilers read: whether the node is Ready, and
// the pressures that it is under.
func slimConditions(all []corev1.NodeCondition) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for i := range all {
		switch c := &all[i]; c.Type {
		case corev1.NodeReady:
			out = append(out, *c)
		case corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure:
			if c.Status == corev1.ConditionTrue {
				out = append(out, *c)
			}
		}
	}
	return out
}

// withUserNamespaces is what all Nodes share whose runtime has user namespaces; builds want them.
var withUserNamespaces = []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: new(true)}}}

// slimHandlers returns the default handler, if it has user namespaces.
func slimHandlers(all []corev1.NodeRuntimeHandler) []corev1.NodeRuntimeHandler {
	for i := range all {
		if f := all[i].Features; all[i].Name == "" && f != nil && f.UserNamespaces != nil && *f.UserNamespaces {
			return withUserNamespaces
		}
	}
	return nil
}

// recentTexts are texts that were shared lately, by their hash. Most texts of an object are in the one
// before it too, and the table of all texts takes longer to ask.
var (
	recentTexts [1024]atomic.Pointer[string]
	textSeed    = maphash.MakeSeed()
)

// internStrings makes equal texts one.
func internStrings(texts ...*string) {
	for _, t := range texts {
		if *t == "" {
			continue
		}
		recent := &recentTexts[maphash.String(textSeed, *t)%uint64(len(recentTexts))]
		if known := recent.Load(); known != nil && *known == *t {
			*t = *known
			continue
		}
		shared := unique.Make(*t).Value()
		recent.Store(&shared)
		*t = shared
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

// fit gives a list memory for its elements alone: a decoder makes room for up to twice as many.
func fit[T any](list *[]T) {
	if l := *list; cap(l) > len(l) {
		*list = append(make([]T, 0, len(l)), l...)
	}
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
	internStrings(&nu.Kind, &nu.APIVersion, &nu.Namespace)
	slimSpec(&nu.Spec)
	slimStatus(&nu.Status)
}

func slimSpec(s *v1alpha1.NodeUpdateSpec) {
	fit(&s.Bundles)
	fit(&s.Peers)
	internStrings(&s.Trust, &s.Pins, &s.Config, &s.Stage)
	for i := range s.Bundles {
		internStrings(&s.Bundles[i].Digest, &s.Bundles[i].Name)
	}
	for i := range s.Peers {
		internStrings(&s.Peers[i].Node, &s.Peers[i].Address, &s.Peers[i].PublicKey)
	}
	if r := s.Run; r != nil {
		internStrings(&r.Name, &r.UID, &r.Bundle, &r.PlanDigest)
		shareSteps(&r.Steps)
	}
}

func slimStatus(st *v1alpha1.NodeUpdateStatus) {
	internStrings(&st.Message, &st.Phase)
	fit(&st.Conditions)
	fit(&st.FileSystems)
	for i := range st.Conditions {
		c := &st.Conditions[i]
		internStrings(&c.Type, (*string)(&c.Status), &c.Reason, &c.Message)
	}
	for i := range st.FileSystems {
		internStrings(&st.FileSystems[i].Name, &st.FileSystems[i].ID)
	}
	shareTexts(&st.Bundles)
	if a := st.Agent; a != nil {
		internStrings(&a.Address, &a.PublicKey, &a.Version)
		shareTexts(&a.Updaters)
		shareTexts(&a.Formats)
	}
	if o := st.Observed; o != nil {
		internStrings(&o.KubeletVersion, &o.KubeadmVersion, &o.ControlPlane, &o.RuntimeName, &o.RuntimeVersion, &o.InstalledImage, &o.Architecture, &o.Config)
		o.Fields, o.Machine = internMap(o.Fields), internMap(o.Machine)
	}
	if p := st.Pins; p != nil {
		internStrings(&p.Content)
	}
	if r := st.Run; r != nil {
		internStrings(&r.UID, &r.PlanDigest, (*string)(&r.State), &r.Step)
	}
}
