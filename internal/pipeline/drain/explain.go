package drain

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Fates of a pod; the words of the API's PodDrain.
const (
	Evict   = "Evict"
	Refused = "Refused"
	Leaving = "Leaving"
	Skipped = "Skipped"
)

// lateAfter its grace period a pod that still is there is worth a sentence.
const lateAfter = 30 * time.Second

// Row is what happens to one pod, and why.
type Row struct {
	Pod  string `json:"pod"`
	Fate string `json:"fate"`
	// Reason word of the catalogue, empty for pods that stay.
	Reason string `json:"reason,omitempty"`
	// Message holds no time and nothing that changes from look to look.
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Since when, if it is known: a pod that ends says so itself.
	Since time.Time `json:"since,omitzero"`
	// Person is true if it does not resolve by itself.
	Person bool `json:"person,omitempty"`
}

var order = map[string]int{Refused: 0, Leaving: 1, Evict: 2, Skipped: 3}

// Rows explains a decision: what is refused first, then what is waited for,
// what will be evicted, and what stays. blockers are what the Eviction API
// refused at the last look (Blocked), by the pod they are about.
func Rows(node string, d Decision, blockers []model.Blocker, now time.Time) []Row {
	blocked := map[string]model.Blocker{}
	for _, v := range append(append([]model.Blocker(nil), d.Refused...), blockers...) {
		blocked[v.Object] = v
	}
	var rows []Row
	for _, p := range d.Evict {
		if v, no := blocked[p.Object()]; no {
			rows = append(rows, refusedRow(node, p.Key(), v))
			continue
		}
		rows = append(rows, evictRow(p))
	}
	for _, v := range d.Refused {
		rows = append(rows, refusedRow(node, strings.TrimPrefix(v.Object, "Pod/"), v))
	}
	for _, p := range d.Leaving {
		rows = append(rows, leavingRow(p, now))
	}
	for _, s := range d.Skipped {
		rows = append(rows, Row{Pod: s.Pod, Fate: Skipped, Message: "stays: " + s.Reason})
	}
	sort.SliceStable(rows, func(i, j int) bool {
		if a, b := order[rows[i].Fate], order[rows[j].Fate]; a != b {
			return a < b
		}
		if rows[i].Person != rows[j].Person {
			return rows[i].Person
		}
		return rows[i].Pod < rows[j].Pod
	})
	return rows
}

// PredictRows explains what a drain would meet now, without asking the Eviction
// API: budgets that allow nothing, or that share a pod, refuse.
func PredictRows(node string, d Decision, now time.Time) []Row {
	var vs []model.Blocker
	for _, p := range d.Evict {
		if held(p) {
			vs = append(vs, EvictionBlocked(node, p, p.Budgets))
		}
	}
	return Rows(node, d, vs, now)
}

// held reports whether the Eviction API would refuse a pod as things are.
func held(p Pod) bool {
	switch {
	case len(p.Budgets) == 0:
		return false
	case len(p.Budgets) > 1:
		return true
	case !p.Ready && p.Budgets[0].UnhealthyMayGo:
		return false
	}
	return p.Budgets[0].Allowed < 1 || p.Budgets[0].Stale
}

func refusedRow(node, pod string, v model.Blocker) Row {
	return Row{Pod: pod, Fate: Refused, Reason: v.Reason, Message: strings.TrimPrefix(v.Message, "node "+node+": "), Fix: v.Fix, Person: !v.Waiting}
}

func evictRow(p Pod) Row {
	r := Row{Pod: p.Key(), Fate: Evict, Reason: reasonDraining, Message: "is evicted; " + p.Owner() + " makes it again elsewhere"}
	if p.OwnerKind == "" {
		r.Message = "is evicted and nothing makes it again: a person said that it may be lost"
	}
	if p.EmptyDir {
		r.Message += "; its emptyDir data goes with it"
	}
	if len(p.Budgets) == 1 {
		r.Message += fmt.Sprintf("; PodDisruptionBudget %s allows %d disruptions", p.Budgets[0].Key(), p.Budgets[0].Allowed)
	}
	return r
}

func leavingRow(p Pod, now time.Time) Row {
	r := Row{Pod: p.Key(), Fate: Leaving, Reason: reasonDraining, Since: p.Since,
		Message: fmt.Sprintf("is ending; it may take %s", p.Grace)}
	if len(p.Finalizers) > 0 {
		r.Message += "; finalizers: " + strings.Join(p.Finalizers, ", ")
	}
	if v := Overdue(p, now); v != nil {
		r.Reason, r.Message, r.Fix, r.Person = v.Reason, v.Message, v.Fix, !v.Waiting
	}
	return r
}

// Overdue says what holds a pod that should have ended; nil while it is in time.
func Overdue(p Pod, now time.Time) *model.Blocker {
	if p.Since.IsZero() || now.Sub(p.Since) <= p.Grace+lateAfter {
		return nil
	}
	v := &model.Blocker{Reason: reasonPodStuckTerminating, Object: p.Object(), Waiting: true,
		Message: fmt.Sprintf("pod %s (owner %s) was evicted, its grace period of %s is over, and it is still there", p.Key(), p.Owner(), p.Grace),
		Fix:     "check the kubelet and the container runtime of node " + p.Node}
	if len(p.Finalizers) > 0 {
		v.Waiting = false
		v.Message += ": its finalizers " + strings.Join(p.Finalizers, ", ") + " hold it"
		v.Fix = "repair the controller that removes the finalizers; refit removes none"
	}
	return v
}

// OverdueBlockers are the blockers over pods of a decision that should have ended.
func (d Decision) OverdueBlockers(now time.Time) []model.Blocker {
	var out []model.Blocker
	for _, p := range d.Leaving {
		if v := Overdue(p, now); v != nil {
			out = append(out, *v)
		}
	}
	return out
}
