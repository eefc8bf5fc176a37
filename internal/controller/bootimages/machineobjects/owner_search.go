package machineobjects

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// Found is everything about machines in one look.
type Found struct {
	Machines []Machine
	Refusals []Refusal
	// Unread says why not all machines are known, empty if they are. Births are then
	// known by node selectors alone.
	Unread string
}

// FindMachines out which machine came from where, became which node, and was refused.
func FindMachines(ctx context.Context, c client.Client, k *Kinds, table *machinekinds.Table, groups []string, nodes []Node) (*Found, error) {
	f := &Found{}
	var err error
	if f.Machines, err = AllMachines(ctx, k, table, groups, nodes); err != nil {
		f.Unread = "which machine became which node is not known: " + err.Error() + "; apply the access rules for boot images again"
	}
	if len(f.Machines) == 0 {
		return f, nil
	}
	f.Refusals, err = Refusals(ctx, c)
	return f, err
}

// SourcesOf nodes, by the node's name.
func (f *Found) SourcesOf() map[string][]string {
	out := map[string][]string{}
	for _, m := range f.Machines {
		if m.Node != "" {
			out[m.Node] = append(out[m.Node], m.Sources...)
		}
	}
	return out
}

const (
	// mostRefused machines are named in a source.
	mostRefused = 8
	// longest text of one.
	longest = 500
)

// Record the machines of a source that have no node yet, and those that were
// refused.
func (f *Found) Record(s *v1alpha1.MachineSource, st *v1alpha1.MachineSourceStatus) {
	st.Joining, st.Refused = 0, nil
	for i := range f.Machines {
		m := &f.Machines[i]
		if m.Joined || m.Object == nil || !m.from(s.Name) {
			continue
		}
		st.Joining++
		if why := m.Refused(f.Refusals); why != "" && len(st.Refused) < mostRefused {
			st.Refused = append(st.Refused, v1alpha1.RefusedMachine{Machine: m.Object.GetNamespace() + "/" + m.Object.GetName(), Message: why[:min(len(why), longest)]})
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

// Why a machine cannot join: it was refused, or its source starts machines from an
// image that is too old for what runs. Empty if nothing is known against it.
func (f *Found) Why(m *Machine, sources map[string]*v1alpha1.MachineSource) string {
	if m.Joined {
		return ""
	}
	if why := m.Refused(f.Refusals); why != "" {
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
