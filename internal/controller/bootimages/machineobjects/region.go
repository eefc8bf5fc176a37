package machineobjects

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// clusterGroup is the API group of Cluster API's Cluster.
const clusterGroup = "cluster.x-k8s.io"

// Region returns the region of a machine manager whose image object has none: that of its
// Cluster's infrastructure, or that of this cluster's nodes where the row allows it. It is
// empty if the row has no rule.
func Region(ctx context.Context, kinds *Kinds, t *machinekinds.Table, m *machinekinds.Manager, k *machinekinds.ImageKind, o *unstructured.Unstructured, nodes string) (string, error) {
	if k.RegionOfNodes {
		if nodes == "" {
			return "", fmt.Errorf("the nodes are in several regions, or do not say it (topology.kubernetes.io/region): set region in the policy")
		}
		return nodes, nil
	}
	if len(k.RegionOf) == 0 {
		return "", nil
	}
	name := ""
	for _, at := range m.Cluster {
		name = cmp.Or(name, machinekinds.Lookup(o.Object, at))
	}
	if name == "" {
		return "", fmt.Errorf("it does not say of which Cluster it is: set region in the policy")
	}
	ns := o.GetNamespace()
	cluster, err := findObject(ctx, kinds, clusterGroup, "Cluster", t.Manager(clusterGroup, "Cluster").Versions, ns, name)
	if err != nil {
		return "", err
	}
	return regionOf(ctx, kinds, k, cluster)
}

// regionOf returns the region of a Cluster's infrastructure.
func regionOf(ctx context.Context, kinds *Kinds, k *machinekinds.ImageKind, cluster *unstructured.Unstructured) (string, error) {
	var known []string
	ns, name := cluster.GetNamespace(), cluster.GetName()
	for _, r := range k.RegionOf {
		known = append(known, r.Kind)
		if machinekinds.Lookup(cluster.Object, r.Ref+".kind") != r.Kind {
			continue
		}
		i, err := findObject(ctx, kinds, r.Group, r.Kind, r.Versions, ns, machinekinds.Lookup(cluster.Object, r.Ref+".name"))
		if err != nil {
			return "", err
		}
		if region := machinekinds.Lookup(i.Object, r.Path); region != "" {
			return region, nil
		}
		return "", fmt.Errorf("%s %s/%s has no %s", r.Kind, ns, i.GetName(), r.Path)
	}
	return "", fmt.Errorf("the infrastructure of Cluster %s/%s is none of %s: set region in the policy", ns, name, strings.Join(known, ", "))
}

// findObject returns one object, or an error that names it.
func findObject(ctx context.Context, kinds *Kinds, group, kind string, versions []string, ns, name string) (*unstructured.Unstructured, error) {
	l := kinds.List(ctx, group, kind, versions)
	if l.Err != nil {
		return nil, l.Err
	}
	if o := l.ByName[ns+"/"+name]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("there is no %s %s/%s", kind, ns, name)
}
