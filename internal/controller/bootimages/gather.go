package bootimages

import (
	"context"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
	"github.com/refit-dev/refit/internal/controller/bootimages/machineobjects"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
)

// machineSnapshot is the API state that one reconcile works on.
type machineSnapshot struct {
	now      time.Time
	policies []v1alpha1.BootImagePolicy
	sources  map[string]*v1alpha1.MachineSource
	streams  map[string]*bootstreams.Stream
	nodes    []sourceNode
	// running is the newest Kubernetes version of a Ready control-plane node;
	// architecture is that of all nodes, empty if they differ.
	running, architecture string
	// region is that of all nodes, empty if they differ or have no label.
	region string
	kinds  *machineobjects.Kinds
	// table has the kinds of refit and of all policies that may refer to a template.
	table *machinekinds.Table
	// problems are, by policy name, invalid entries and kinds that cannot be listed.
	problems map[string]convert.PolicyProblems
	// claimed are the candidates by the name of their source; deselected are those
	// that an entry with select None claims.
	claimed, deselected map[string]bool
	// partial is true if something could not be read; then nothing is deleted.
	partial bool
	// update is a ClusterUpdate that has started and is not done, as Kind/name.
	update string
	// retrySoon is set when a write must be tried again soon.
	retrySoon bool
	// machines has the source of each machine, and the machines that could not join.
	machines *machineobjects.Inventory
	// userData are the first-boot configurations.
	userData *userDataKeeper
	// poolChecks are the health checks that a canary must pass.
	poolChecks machineobjects.PoolChecks
	// usedCanaries are the managers of canaries that stay, by namespace and name; openCanary is
	// the first source of the policy whose canary has not passed.
	usedCanaries map[string]bool
	openCanary   string
	// usedTemplates are refit's templates that are still needed, by kind and name.
	usedTemplates map[string]bool
}

// gather returns nil if there is nothing to reconcile.
func (r *Reconciler) gather(ctx context.Context) (*machineSnapshot, error) {
	var policies v1alpha1.BootImagePolicyList
	var sources v1alpha1.MachineSourceList
	var streams v1alpha1.BootImageStreamList
	var updates v1alpha1.ClusterUpdateList
	var pools v1alpha1.UpdatePoolList
	for _, l := range []client.ObjectList{&policies, &sources, &streams, &updates, &pools} {
		if err := r.Client.List(ctx, l); err != nil {
			return nil, err
		}
	}
	if len(policies.Items)+len(sources.Items)+len(streams.Items) == 0 {
		return nil, nil
	}
	w := &machineSnapshot{now: r.Now(), policies: policies.Items, sources: map[string]*v1alpha1.MachineSource{}, kinds: machineobjects.NewKinds(r.Objects), table: machinekinds.BuiltIn(),
		problems: map[string]convert.PolicyProblems{}, claimed: map[string]bool{}, deselected: map[string]bool{}, usedTemplates: map[string]bool{}, usedCanaries: map[string]bool{}}
	w.userData, w.poolChecks = newUserDataKeeper(r.Objects, FieldOwner, w.now), machineobjects.PoolChecks{Live: r.Objects, Pools: pools.Items}
	w.update = rolloutfacts.RunningUpdate(updates.Items)
	sort.Slice(w.policies, func(i, j int) bool { return w.policies[i].Name < w.policies[j].Name })
	for i := range sources.Items {
		w.sources[sources.Items[i].Name] = &sources.Items[i]
	}
	if err := r.gatherNodes(ctx, w); err != nil {
		return nil, err
	}
	var err error
	w.streams, err = r.Streams.Load(ctx, streams.Items, w.running)
	return w, err
}

func (r *Reconciler) gatherNodes(ctx context.Context, w *machineSnapshot) error {
	var nodes corev1.NodeList
	var updates v1alpha1.NodeUpdateList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	if err := r.Client.List(ctx, &updates, client.InNamespace(v1alpha1.NodesNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	seen := map[string]*v1alpha1.Observed{}
	for i := range updates.Items {
		seen[updates.Items[i].Name] = updates.Items[i].Status.Observed
	}
	var known []machineobjects.Node
	architectures, regions := map[string]bool{}, map[string]bool{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		architectures[n.Status.NodeInfo.Architecture] = true
		regions[n.Labels[corev1.LabelTopologyRegion]] = true
		node := sourceNode{Name: n.Name, Labels: n.Labels, Created: n.CreationTimestamp.Time}
		if o := seen[n.Name]; o != nil {
			node.InstalledImage, node.Machine = o.InstalledImage, o.Machine
		}
		w.nodes, known = append(w.nodes, node), append(known, machineobjects.Node{Name: n.Name, UID: string(n.UID), ProviderID: n.Spec.ProviderID, ReadySince: readySince(n), Installed: node.InstalledImage, Labels: n.Labels})
		if _, cp := n.Labels["node-role.kubernetes.io/control-plane"]; cp && ready(n) {
			w.running = laterVersion(w.running, n.Status.NodeInfo.KubeletVersion)
		}
	}
	w.architecture, w.region = onlyElement(architectures), onlyElement(regions)
	sort.Slice(w.nodes, func(i, j int) bool { return w.nodes[i].Name < w.nodes[j].Name })
	return r.gatherMachines(ctx, w, known)
}

// gatherMachines finds the source of each node.
func (r *Reconciler) gatherMachines(ctx context.Context, w *machineSnapshot, known []machineobjects.Node) (err error) {
	var groups []string
	for i := range w.policies {
		for _, m := range w.policies[i].Spec.Managers {
			groups = append(groups, m.Group)
		}
	}
	for _, s := range w.sources { // conditions on machines are removed after their policy was deleted
		if m := s.Spec.Manager; m != nil {
			groups = append(groups, m.Group)
		}
	}
	if w.machines, err = machineobjects.FindMachines(ctx, r.Objects, w.kinds, w.table, groups, known); err != nil {
		return err
	}
	sources := w.machines.SourcesOf()
	for i := range w.nodes {
		w.nodes[i].Sources = sources[w.nodes[i].Name]
	}
	return nil
}

// onlyElement returns the single element of a set, empty if there are several.
func onlyElement(set map[string]bool) string {
	if len(set) != 1 {
		return ""
	}
	for s := range set {
		return s
	}
	return ""
}

// laterVersion returns the later of two versions; an invalid version is never later.
func laterVersion(a, b string) string {
	y, errB := componentversion.ParseOS(b)
	if errB != nil {
		return a
	}
	x, errA := componentversion.ParseOS(a)
	if errA != nil {
		return b
	}
	if c, err := x.Compare(y); err == nil && c < 0 {
		return b
	}
	return a
}
