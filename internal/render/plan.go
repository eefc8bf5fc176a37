package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// Estimate has the bytes that a node still has to fetch, and their room. It is not part
// of the plan's digest, because it changes while the nodes prepare.
type Estimate struct {
	Node         string           `json:"node"`
	BytesToFetch int64            `json:"bytesToFetch"`
	BytesTotal   int64            `json:"bytesTotal"`
	DiskNeeded   map[string]int64 `json:"diskNeeded,omitempty"`
	DiskFree     map[string]int64 `json:"diskFree,omitempty"`
}

// PlanView is what `refit plan` prints.
type PlanView struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Update     string      `json:"update"`
	State      string      `json:"state"` // ready, blocked, preparing, nothing-to-do
	Digest     string      `json:"digest,omitempty"`
	Plan       *model.Plan `json:"plan,omitempty"`
	// Hops are the states of the hops of an update that has several.
	Hops      []HopView         `json:"hops,omitempty"`
	Estimates []Estimate        `json:"estimates,omitempty"`
	Waiting   []explain.Blocker `json:"waiting,omitempty"`
	Warnings  []explain.Blocker `json:"warnings,omitempty"`
	// OS describes the new OS image of every pool.
	OS []string `json:"os,omitempty"`
	// Rollout describes the rollout of the plan in sentences, from the current pools.
	// It is not part of the plan.
	Rollout []string `json:"rollout,omitempty"`
	// Resources describes the changes of the bundle's cluster resources, then every
	// conflict. They follow the nodes and are not part of the plan.
	Resources []string `json:"resources,omitempty"`
	// APIAway is how long the API server was unavailable the last time that control-plane
	// nodes moved in this cluster; nil if it was never measured.
	APIAway *APIAway `json:"apiUnavailable,omitempty"`
}

// States of a hop.
const (
	HopWaits = "waits"
	HopNext  = "next"
	HopRuns  = "runs"
	HopDone  = "done"
)

// HopView is one hop of an update.
type HopView struct {
	Bundle  string `json:"bundle"`
	Version string `json:"version,omitempty"`
	// State is waits, next, runs or done.
	State string `json:"state"`
}

// APIAway is what was measured in an earlier update.
type APIAway struct {
	// Update is the name of that ClusterUpdate.
	Update string `json:"update"`
	// TotalSeconds without an answer, LongestSeconds the longest stretch.
	TotalSeconds   int64 `json:"totalSeconds"`
	LongestSeconds int64 `json:"longestSeconds"`
}

// Plan writes a plan.
func Plan(w io.Writer, format string, v PlanView) error {
	if format == JSON || format == YAML {
		return Value(w, format, v)
	}
	if v.Plan == nil {
		fmt.Fprintf(w, "No plan: %s\n", v.State)
		waits(w, explain.View{Waiting: v.Waiting, Warnings: v.Warnings})
		return nil
	}
	hops := v.Plan.Hops()
	fmt.Fprintf(w, "Plan %s\nto %s\n\n", v.Digest, target(hops[len(hops)-1].Target))
	planHops(w, v, hops, format == Wide)
	planRollout(w, v)
	planResources(w, v)
	waits(w, explain.View{Waiting: v.Waiting, Warnings: v.Warnings})
	fmt.Fprintf(w, "\nState: %s\n", v.State)
	return nil
}

// planHops writes the nodes and fields of every hop. A plan with a single one has no headings.
func planHops(w io.Writer, v PlanView, hops []model.Plan, wide bool) {
	for i := range hops {
		v.Plan = &hops[i]
		if len(v.Hops) == len(hops) {
			fmt.Fprintf(w, "Hop %d of %d, to %s: %s.\n", i+1, len(hops), target(hops[i].Target), v.Hops[i].State)
		}
		if len(v.Plan.Nodes) == 0 {
			fmt.Fprintln(w, "No node changes.")
		} else {
			planNodes(w, v)
			planFields(w, v, wide)
			planNotes(w, v)
		}
		if i < len(hops)-1 {
			fmt.Fprintln(w)
		}
	}
}

// target in words.
func target(t model.Target) string {
	if t.Bundle == "" {
		return "the NodeConfigs, without a bundle"
	}
	s := fmt.Sprintf("%s %s (bundle %s", t.Name, t.Version, text.ShortDigest(t.Bundle))
	if t.Kubernetes != "" {
		s += ", Kubernetes " + t.Kubernetes
	}
	return s + ")"
}

func planNodes(w io.Writer, v PlanView) {
	est := map[string]Estimate{}
	for _, e := range v.Estimates {
		est[e.Node] = e
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "WAVE\tNODE\tPOOL\tROLE\tFROM\tTO\tSTEPS\tDISRUPTION\tTO FETCH\tDISK NEEDED/FREE")
	for _, n := range v.Plan.Nodes {
		e := est[n.Node]
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Wave, n.Node, n.Pool, n.Role, n.From, n.To, steps(n), worst(n), explain.Bytes(e.BytesToFetch), disk(e))
	}
	t.Flush()
}

func steps(n model.NodePlan) string {
	out := make([]string, 0, len(n.Steps))
	for _, s := range n.Steps {
		out = append(out, s.ID)
	}
	return strings.Join(out, ">")
}

func worst(n model.NodePlan) string {
	rank := map[model.Disruption]int{model.DisruptionNone: 0, model.DisruptionReload: 1, model.DisruptionRestart: 2, model.DisruptionDrain: 3, model.DisruptionReboot: 4}
	out := model.DisruptionNone
	for _, s := range n.Steps {
		if rank[s.Disruption] > rank[out] {
			out = s.Disruption
		}
	}
	return string(out)
}

func disk(e Estimate) string {
	var needed, free int64 = 0, -1
	for name, n := range e.DiskNeeded {
		needed += n
		if f, ok := e.DiskFree[name]; ok && (free < 0 || f < free) {
			free = f
		}
	}
	if free < 0 {
		for _, f := range e.DiskFree {
			if free < 0 || f < free {
				free = f
			}
		}
	}
	if free < 0 {
		return explain.Bytes(needed) + "/?"
	}
	return explain.Bytes(needed) + "/" + explain.Bytes(free)
}

func planNotes(w io.Writer, v PlanView) {
	for _, n := range v.Plan.Nodes {
		if n.PointOfNoReturn == "" {
			continue
		}
		for _, s := range n.Steps {
			if s.ID == n.PointOfNoReturn {
				fmt.Fprintf(w, "\nPoint of no return on %s: step %s. %s", n.Node, s.ID, s.NotReversible)
			}
		}
	}
	fmt.Fprintln(w)
	for _, s := range v.OS {
		fmt.Fprintf(w, "OS image: %s.\n", s)
	}
	if a := v.APIAway; a != nil && movesControlPlane(v.Plan) {
		fmt.Fprintf(w, "The API server was unavailable for %ds, %ds at a stretch, during ClusterUpdate %s.\n", a.TotalSeconds, a.LongestSeconds, a.Update)
	}
}

func movesControlPlane(p *model.Plan) bool {
	return slices.ContainsFunc(p.Nodes, func(n model.NodePlan) bool { return n.Role == model.RoleControlPlane })
}

// planRollout writes how the plan will be rolled out.
func planResources(w io.Writer, v PlanView) {
	if len(v.Resources) == 0 {
		return
	}
	fmt.Fprintln(w, "\nCluster resources of the bundle, after the nodes:")
	for _, l := range v.Resources {
		fmt.Fprintln(w, "  "+l)
	}
}

func planRollout(w io.Writer, v PlanView) {
	if len(v.Rollout) == 0 {
		return
	}
	fmt.Fprintln(w, "\nHow it is rolled out:")
	for _, l := range v.Rollout {
		fmt.Fprintln(w, "  "+l)
	}
}
