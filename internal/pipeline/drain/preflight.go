package drain

import (
	"fmt"
	"sort"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// maxNamed is how many pods a sentence names.
const maxNamed = 6

// Preflight reports, before any node changes, obstacles that a drain can never pass by
// itself: budgets that can never be met, pods with two budgets, pods without a controller.
// pods are those of all nodes that the plan drains. Each obstacle names its pods by node.
func Preflight(pods []Pod, o Options) []model.Blocker {
	hopeless := map[string]*obstacle{}
	var out []model.Blocker
	d := DecideWith(pods, o)
	for _, p := range d.Evict {
		obstruct(hopeless, p)
	}
	strand(hopeless, d.Evict)
	byKey := map[string]Pod{}
	for _, p := range pods {
		byKey[p.Object()] = p
	}
	for _, v := range d.Refused {
		v.Message = "node " + byKey[v.Object].Node + ": " + v.Message
		out = append(out, v)
	}
	for _, h := range hopeless {
		h.v.Message += "; the drain would wait for " + h.message()
		out = append(out, h.v)
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].Object < out[j].Object || out[i].Object == out[j].Object && out[i].Message < out[j].Message
	})
	return out
}

// Hinders reports whether Preflight has something to say about a pod: of a
// million pods only these need to be kept.
func Hinders(p Pod, o Options) bool {
	d := DecideWith([]Pod{p}, o)
	found := map[string]*obstacle{}
	for _, p := range d.Evict {
		obstruct(found, p)
	}
	return len(d.Refused)+len(found) > 0 || p.Nowhere && len(d.Evict) == 1 && len(p.Budgets) == 1
}

// strand adds the budgets that let fewer of a node's pods go than must, while no other
// node takes those that went: the rest would wait for them for ever.
func strand(to map[string]*obstacle, evict []Pod) {
	byPlace := map[string][]Pod{}
	for _, p := range evict {
		if len(p.Budgets) != 1 || !p.Nowhere || !p.Ready && p.Budgets[0].UnhealthyMayGo {
			continue
		}
		if why, _ := p.Budgets[0].neverAllows(); why == "" {
			key := "3 " + p.Budgets[0].Key() + " " + p.Node
			byPlace[key] = append(byPlace[key], p)
		}
	}
	for key, pods := range byPlace {
		b := pods[0].Budgets[0]
		if len(pods) <= int(b.Allowed) {
			continue
		}
		for _, p := range pods {
			addObstacle(to, key, p, model.Blocker{Reason: reasonDisruptionBudget, Object: "PodDisruptionBudget/" + b.Key(),
				Message: fmt.Sprintf("PodDisruptionBudget %s lets %d of its %d pods on node %s go, and no other schedulable node takes them (nodeSelector, taints)", b.Key(), b.Allowed, len(pods), p.Node),
				Fix:     "give them another node, or loosen " + b.Key() + " while node " + p.Node + " is updated"})
		}
	}
}

// obstruct adds what could never let a pod go.
func obstruct(to map[string]*obstacle, p Pod) {
	if len(p.Budgets) > 1 {
		b := sortBudgets(p.Budgets)
		addObstacle(to, "2 "+joinKeys(b), p, twoBudgets(b))
		return
	}
	for _, b := range p.Budgets {
		if why, fix := b.neverAllows(); why != "" && (p.Ready || !b.UnhealthyMayGo) {
			addObstacle(to, "1 "+b.Key(), p, model.Blocker{Reason: reasonDisruptionBudget, Object: "PodDisruptionBudget/" + b.Key(),
				Message: "PodDisruptionBudget " + b.Key() + " " + why, Fix: fix})
		}
	}
}

func sortBudgets(bs []Budget) []Budget {
	bs = append([]Budget(nil), bs...)
	sort.Slice(bs, func(i, j int) bool { return bs[i].Key() < bs[j].Key() })
	return bs
}

func twoBudgets(bs []Budget) model.Blocker {
	return model.Blocker{Reason: reasonDisruptionBudget, Object: "PodDisruptionBudget/" + bs[0].Key(),
		Message: fmt.Sprintf("PodDisruptionBudgets %s protect the same pods, and the API server evicts no pod that has two budgets", joinKeys(bs)),
		Fix:     "delete one of " + joinKeys(bs) + ", or narrow its selector"}
}

// obstacle is a blocker and the pods it is about.
type obstacle struct {
	v    model.Blocker
	pods []Pod
}

func addObstacle(to map[string]*obstacle, key string, p Pod, v model.Blocker) {
	if to[key] == nil {
		to[key] = &obstacle{v: v}
	}
	to[key].pods = append(to[key].pods, p)
}

// message lists the pods by node: "node n2: shop/app-1; node n3: shop/app-2".
func (o *obstacle) message() string {
	pods := o.pods
	sort.SliceStable(pods, func(i, j int) bool { return pods[i].Node < pods[j].Node })
	var parts []string
	last := ""
	for i, p := range pods[:min(len(pods), maxNamed)] {
		if i > 0 && p.Node == last {
			parts[len(parts)-1] += ", " + p.Key()
			continue
		}
		parts = append(parts, "node "+p.Node+": "+p.Key())
		last = p.Node
	}
	out := strings.Join(parts, "; ")
	if n := len(pods) - maxNamed; n > 0 {
		out += fmt.Sprintf("; and %d more", n)
	}
	return out
}
