package machineobjects

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// Groups whose machines are listed.
const (
	ClusterAPI = "cluster.x-k8s.io"
	OpenShift  = "machine.openshift.io"
	karpenter  = "karpenter.sh"
)

// labelCluster names the Cluster that an object belongs to.
const labelCluster = "cluster.x-k8s.io/cluster-name"

// Node is what identifies a node.
type Node struct {
	Name, UID, ProviderID string
	// ReadySince is zero while the node is not Ready. Installed is the OS version of the image
	// that it was installed from, if its agent reports one.
	ReadySince time.Time
	Installed  string
	Labels     map[string]string
}

// Machine is one machine.
type Machine struct {
	// Object is the Machine itself, nil if there is none (pools, Karpenter).
	Object *unstructured.Unstructured
	// Sources are the names of the MachineSources that it may come from: its owner, the
	// owner's owner, and so on.
	Sources []string
	// Node is its node in this cluster, empty if it has none here.
	Node string
	// ReadySince and Installed are those of its node; ReadySince is the Machine's own statement
	// if the node is in another cluster.
	ReadySince time.Time
	Installed  string
	// Joined is true if it has a node in this cluster, or elsewhere by its nodeRef.
	Joined bool
	// Addresses are those in its status.
	Addresses []string
}

// ListMachines lists the machines of every kind that the cluster serves and a source needs.
func ListMachines(ctx context.Context, k *Kinds, table *machinekinds.Table, groups []string, nodes []Node) ([]Machine, error) {
	r := machineReader{kinds: k, table: table, byName: map[string]Node{}, byProvider: map[string]string{}}
	for _, n := range nodes {
		r.byName[n.Name] = n
		if n.ProviderID != "" {
			r.byProvider[n.ProviderID] = n.Name
		}
	}
	var out []Machine
	var errs []error
	for _, part := range []struct {
		needs string // in the group of a manager
		read  func(context.Context) ([]Machine, error)
	}{{ClusterAPI, r.clusterAPI}, {ClusterAPI, r.pools}, {OpenShift, r.openShift}, {"karpenter", r.claims}} {
		if !slices.ContainsFunc(groups, func(g string) bool { return strings.Contains(g, part.needs) }) {
			continue
		}
		ms, err := part.read(ctx)
		out, errs = append(out, ms...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

type machineReader struct {
	kinds      *Kinds
	table      *machinekinds.Table
	byName     map[string]Node
	byProvider map[string]string
}

func (r *machineReader) clusterAPI(ctx context.Context) ([]Machine, error) {
	return r.machines(ctx, ClusterAPI, []string{"v1beta2", "v1beta1"})
}

func (r *machineReader) openShift(ctx context.Context) ([]Machine, error) {
	return r.machines(ctx, OpenShift, []string{"v1beta1"})
}

func (r *machineReader) machines(ctx context.Context, group string, versions []string) ([]Machine, error) {
	l := r.kinds.List(ctx, group, "Machine", versions)
	if l.Err != nil {
		return nil, l.Err
	}
	var out []Machine
	for _, o := range l.Items {
		name := stringField(o, "status", "nodeRef", "name")
		m := Machine{Object: o, Sources: r.sources(ctx, o), Addresses: addresses(o)}
		m.Node = r.node(name, stringField(o, "status", "nodeRef", "uid"), stringField(o, "spec", "providerID"))
		m.Joined = name != "" || m.Node != ""
		m.ReadySince, m.Installed = r.readySince(m.Node, o)
		out = append(out, m)
	}
	return out, nil
}

// node returns a machine's node in this cluster: by name, unless UID or provider ID contradict,
// else by provider ID.
func (r *machineReader) node(name, uid, provider string) string {
	n, ok := r.byName[name]
	switch {
	case name == "" || !ok:
		return r.byProvider[provider]
	case uid != "" && n.UID != "" && uid != n.UID, provider != "" && n.ProviderID != "" && provider != n.ProviderID:
		return ""
	}
	return name
}

// maxOwners is how many levels of owners are followed.
const maxOwners = 4

// sources follows the owner references as far as their kinds are known.
func (r *machineReader) sources(ctx context.Context, o *unstructured.Unstructured) []string {
	var out []string
	add := func(group, kind, ns, name string) {
		if s := SourceName(group, kind, ns, name); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	ns, at := o.GetNamespace(), o
	for range maxOwners {
		row, name := r.owner(at)
		if row == nil {
			break
		}
		add(row.Group, row.Kind, ns, name)
		l := r.kinds.List(ctx, row.Group, row.Kind, row.Versions)
		if at = l.ByName[ns+"/"+name]; at == nil || IsCanary(at) { // a canary is owned by the manager that it is a copy of
			break
		}
	}
	if c := o.GetLabels()[labelCluster]; c != "" {
		add(ClusterAPI, "Cluster", ns, c)
	}
	return out
}

// owner returns the machine manager that owns an object.
func (r *machineReader) owner(o *unstructured.Unstructured) (*machinekinds.Manager, string) {
	for _, ref := range o.GetOwnerReferences() {
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		if row := r.table.Manager(group, ref.Kind); row != nil && ref.Kind != "Cluster" {
			return row, ref.Name
		}
	}
	return nil, ""
}

func addresses(o *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "addresses")
	var out []string
	for _, a := range list {
		if m, ok := a.(map[string]any); ok {
			if at, ok := m["address"].(string); ok && at != "" {
				out = append(out, at)
			}
		}
	}
	return out
}

// pools returns the machines of MachinePools, which list their nodes and may have no Machine
// objects.
func (r *machineReader) pools(ctx context.Context) ([]Machine, error) {
	l := r.kinds.List(ctx, ClusterAPI, "MachinePool", []string{"v1beta2", "v1beta1"})
	if l.Err != nil {
		return nil, l.Err
	}
	var out []Machine
	for _, o := range l.Items {
		refs, _, _ := unstructured.NestedSlice(o.Object, "status", "nodeRefs")
		for _, ref := range refs {
			m, _ := ref.(map[string]any)
			name, _ := m["name"].(string)
			uid, _ := m["uid"].(string)
			if node := r.node(name, uid, ""); node != "" {
				out = append(out, Machine{Sources: []string{SourceName(ClusterAPI, "MachinePool", o.GetNamespace(), o.GetName())}, Node: node, Joined: true})
			}
		}
	}
	return out, nil
}

// claims returns Karpenter's NodeClaims; their source is the node class.
func (r *machineReader) claims(ctx context.Context) ([]Machine, error) {
	l := r.kinds.List(ctx, karpenter, "NodeClaim", []string{"v1"})
	if l.Err != nil {
		return nil, l.Err
	}
	var out []Machine
	for _, o := range l.Items {
		class := SourceName(stringField(o, "spec", "nodeClassRef", "group"), stringField(o, "spec", "nodeClassRef", "kind"), "", stringField(o, "spec", "nodeClassRef", "name"))
		name := stringField(o, "status", "nodeName")
		out = append(out, Machine{Sources: []string{class}, Joined: name != "", Node: r.node(name, "", stringField(o, "status", "providerID"))})
	}
	return out, nil
}

func stringField(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}
