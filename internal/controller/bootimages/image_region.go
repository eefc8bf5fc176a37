package bootimages

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
	"github.com/refit-dev/refit/internal/controller/bootimages/machineobjects"
)

// clusterGroup is the group of Cluster API's Cluster.
const clusterGroup = "cluster.x-k8s.io"

// Region of a machine manager whose image object does not say one: that of the
// infrastructure of its Cluster, or the one that the nodes of this cluster are in
// where the row says so. Empty if the row looks nowhere.
func Region(ctx context.Context, kinds *machineobjects.Kinds, t *machinekinds.Table, m *machinekinds.Manager, k *machinekinds.ImageKind, o *unstructured.Unstructured, nodes string) (string, error) {
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
	cluster, err := find(ctx, kinds, clusterGroup, "Cluster", t.Manager(clusterGroup, "Cluster").Versions, ns, name)
	if err != nil {
		return "", err
	}
	return regionOf(ctx, kinds, k, cluster)
}

// regionOf a Cluster's infrastructure.
func regionOf(ctx context.Context, kinds *machineobjects.Kinds, k *machinekinds.ImageKind, cluster *unstructured.Unstructured) (string, error) {
	var known []string
	ns, name := cluster.GetNamespace(), cluster.GetName()
	for _, r := range k.RegionOf {
		known = append(known, r.Kind)
		if machinekinds.Lookup(cluster.Object, r.Ref+".kind") != r.Kind {
			continue
		}
		i, err := find(ctx, kinds, r.Group, r.Kind, r.Versions, ns, machinekinds.Lookup(cluster.Object, r.Ref+".name"))
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

// find one object; that it cannot be found is said.
func find(ctx context.Context, kinds *machineobjects.Kinds, group, kind string, versions []string, ns, name string) (*unstructured.Unstructured, error) {
	l := kinds.List(ctx, group, kind, versions)
	if l.Err != nil {
		return nil, l.Err
	}
	if o := l.ByName[ns+"/"+name]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("there is no %s %s/%s", kind, ns, name)
}
