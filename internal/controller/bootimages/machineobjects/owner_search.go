package machineobjects

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// Inventory is what one reconcile knows about machines.
type Inventory struct {
	Machines []Machine
	Refusals []Refusal
	// labels of nodes, by name.
	labels map[string]map[string]string
	// Unread is why not all machines are known, empty if they are. Then only node
	// selectors tell the source of a node.
	Unread string
}

// FindMachines finds the source of each machine, its node, and whether it was refused.
func FindMachines(ctx context.Context, c client.Client, k *Kinds, table *machinekinds.Table, groups []string, nodes []Node) (*Inventory, error) {
	f := &Inventory{labels: map[string]map[string]string{}}
	for _, n := range nodes {
		f.labels[n.Name] = n.Labels
	}
	var err error
	if f.Machines, err = ListMachines(ctx, k, table, groups, nodes); err != nil {
		f.Unread = "the nodes of machines are unknown: " + err.Error() + "; apply the access rules for boot images again"
	}
	if len(f.Machines) == 0 {
		return f, nil
	}
	f.Refusals, err = Refusals(ctx, c)
	return f, err
}

// SourcesOf returns the sources of each node, by the node's name.
func (f *Inventory) SourcesOf() map[string][]string {
	out := map[string][]string{}
	for _, m := range f.Machines {
		if m.Node != "" {
			out[m.Node] = append(out[m.Node], m.Sources...)
		}
	}
	return out
}

const (
	// maxRefused is how many refused machines a source lists.
	maxRefused = 8
	// maxText is the longest message of one, in bytes.
	maxText = 500
)

// RecordJoining records a source's machines that have no node yet, and those that were refused.
func (f *Inventory) RecordJoining(s *v1alpha1.MachineSource, st *v1alpha1.MachineSourceStatus) {
	st.Joining, st.Refused = 0, nil
	for i := range f.Machines {
		m := &f.Machines[i]
		if m.Joined || m.Object == nil || !m.from(s.Name) {
			continue
		}
		st.Joining++
		if why := m.RefusalMessage(f.Refusals); why != "" && len(st.Refused) < maxRefused {
			st.Refused = append(st.Refused, v1alpha1.RefusedMachine{Machine: m.Object.GetNamespace() + "/" + m.Object.GetName(), Message: why[:min(len(why), maxText)]})
		}
	}
}

func (m *Machine) from(source string) bool {
	for _, s := range m.Sources {
		if s == source {
			return true
		}
	}
	return false
}

// JoinProblem returns why a machine cannot join: it was refused, or its source uses an image
// that is too old for the running release. It is empty if no problem is known.
func (f *Inventory) JoinProblem(m *Machine, sources map[string]*v1alpha1.MachineSource) string {
	if m.Joined {
		return ""
	}
	if why := m.RefusalMessage(f.Refusals); why != "" {
		return why
	}
	for _, name := range m.Sources {
		s := sources[name]
		if s == nil {
			continue
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionNewEnough); c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonBootImageTooOld {
			return "MachineSource " + name + ": " + c.Message
		}
	}
	return ""
}
