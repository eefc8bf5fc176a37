package gatefacts

import (
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// needsOf are what a plan asks of each node's agent; nodes with the same steps share one.
func needsOf(p model.Plan) map[string]*gate.Needs {
	p, later := inOneHop(p)
	out, known := make(map[string]*gate.Needs, len(p.Nodes)), map[string]*gate.Needs{}
	for i := range p.Nodes {
		n := gate.Needs{Refit: componentversion.Refit(), Formats: []string{model.PinSetVersion, model.PlanVersion}}
		for _, s := range p.Nodes[i].Steps {
			if s.By == model.ByAgent && !slices.Contains(n.Updaters, s.Updater) {
				n.Updaters = append(n.Updaters, s.Updater)
			}
			if s.Params[model.ParamConfig] != "" && len(n.Formats) == 2 {
				n.Formats = append(n.Formats, model.ConfigVersion, model.ConfigVersionAsImage)
			}
		}
		if slices.ContainsFunc(p.Nodes[i].Steps, hasUndoDeadline) {
			n.Formats = append(n.Formats, model.UndoDeadlineVersion)
		}
		if later[p.Nodes[i].Node] {
			n.Formats = append(n.Formats, model.HopsVersion)
		}
		if len(n.Updaters) == 0 {
			continue // its agent runs nothing
		}
		key := strings.Join(append(n.Updaters, n.Formats...), " ")
		if known[key] == nil {
			known[key] = &n
		}
		out[p.Nodes[i].Node] = known[key]
	}
	return out
}

// inOneHop is a plan in which each node has its steps of all hops; later are the nodes with
// steps in another hop than the first.
func inOneHop(p model.Plan) (all model.Plan, later map[string]bool) {
	if len(p.Then) == 0 {
		return p, nil
	}
	later = map[string]bool{}
	at := map[string]int{}
	for i, hop := range p.Hops() {
		for _, np := range hop.Nodes {
			k, known := at[np.Node]
			if !known {
				k = len(all.Nodes)
				at[np.Node] = k
				all.Nodes = append(all.Nodes, model.NodePlan{Node: np.Node})
			}
			all.Nodes[k].Steps = append(all.Nodes[k].Steps, np.Steps...)
			later[np.Node] = later[np.Node] || i > 0
		}
	}
	return all, later
}

func hasUndoDeadline(s model.Step) bool { return s.Params[model.ParamUndoDeadline] != "" }

// Needs are what the plan asks of a node's agent, nil if nothing.
func (m *Moves) Needs(node string) *gate.Needs { return m.needs[node] }
