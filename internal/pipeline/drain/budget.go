package drain

import (
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

// Budget is a disruption budget that protects a pod.
type Budget struct {
	Namespace, Name string
	// Allowed disruptions now; Healthy of Expected pods, Wanted at least.
	Allowed, Healthy, Wanted, Expected int32
	// Rule as it is written, for people: "minAvailable 2", "maxUnavailable 0".
	Rule string
	// Broken is what the disruption controller says if it cannot compute the
	// budget at all: then it allows nothing, for ever. Empty otherwise.
	Broken string
	// Stale is true if the budget was changed and not computed since.
	Stale bool
	// UnhealthyMayGo is true with unhealthyPodEvictionPolicy AlwaysAllow: pods that are
	// not ready are evicted even if the budget allows none.
	UnhealthyMayGo bool
}

// Key is namespace/name.
func (b Budget) Key() string { return b.Namespace + "/" + b.Name }

// Impossible reports whether the budget allows no eviction even when all its
// pods are healthy.
func (b Budget) Impossible() bool { return b.Expected > 0 && b.Wanted >= b.Expected }

// recount reports whether the budget has room by its own numbers but allows nothing: an
// eviction was granted, and the disruption controller has not counted the pods since.
func (b Budget) recount() bool { return b.Allowed <= 0 && b.Healthy > b.Wanted }

// neverAllows returns why a budget can never allow an eviction, and the fix; empty if it
// can.
func (b Budget) neverAllows() (why, fix string) {
	switch {
	case b.Broken != "":
		return "cannot be computed (" + b.Broken + "), so it allows no eviction", "its selector must match only pods of one scalable owner: correct spec.selector of " + b.Key()
	case b.Impossible():
		rule := b.Rule
		if rule == "" {
			rule = "its rule"
		}
		return fmt.Sprintf("allows no eviction, ever: %s wants %d of %d pods", rule, b.Wanted, b.Expected),
			"lower minAvailable (or raise maxUnavailable) of " + b.Key() + ", or add replicas"
	}
	return "", ""
}

// EvictionBlocked explains why the Eviction API refused a pod. It waits: an eviction is
// tried again every few seconds.
func EvictionBlocked(node string, p Pod, budgets []Budget) model.Blocker {
	v := model.Blocker{Reason: reasonDisruptionBudget, Object: p.Object(), Waiting: true}
	if len(budgets) == 0 {
		v.Message = fmt.Sprintf("node %s: the API server holds back the eviction of pod %s (owner %s)", node, p.Key(), p.Owner())
		return v
	}
	b := budgets[0]
	v.Message = fmt.Sprintf("node %s: pod %s (owner %s) is protected by PodDisruptionBudget %s, which allows %d disruptions: %d of %d pods are healthy, %d are wanted",
		node, p.Key(), p.Owner(), b.Key(), b.Allowed, b.Healthy, b.Expected, b.Wanted)
	v.Fix = "make more pods of " + p.Owner() + " healthy or add replicas"
	if why, fix := b.neverAllows(); why != "" {
		v.Waiting = false
		v.Fix = "this budget can never be met: " + fix
		if b.Broken != "" {
			v.Message = fmt.Sprintf("node %s: pod %s (owner %s) is protected by PodDisruptionBudget %s, which %s", node, p.Key(), p.Owner(), b.Key(), why)
		}
	} else if b.recount() {
		v.Message = fmt.Sprintf("node %s: pod %s (owner %s) waits for PodDisruptionBudget %s: an eviction used what it allows, and its pods were not counted since; %d of %d are healthy, %d are wanted",
			node, p.Key(), p.Owner(), b.Key(), b.Healthy, b.Expected, b.Wanted)
		v.Fix = "wait: this takes seconds, or up to half a minute after the controller manager was restarted; if it stays, check kube-controller-manager"
	} else if !p.Ready && b.Healthy < b.Wanted && !b.UnhealthyMayGo {
		v.Fix += "; the pod itself is not ready, and unhealthyPodEvictionPolicy AlwaysAllow of " + b.Key() + " would let such pods go"
	}
	if len(budgets) > 1 {
		v.Waiting = false
		v.Message = fmt.Sprintf("node %s: pod %s (owner %s) is protected by %d PodDisruptionBudgets, %s", node, p.Key(), p.Owner(), len(budgets), joinKeys(budgets))
		v.Fix = fmt.Sprintf("the API server evicts no pod that has two budgets: delete one of %s and %s", b.Key(), budgets[1].Key())
	}
	return v
}

func joinKeys(bs []Budget) string {
	out := ""
	for i, b := range bs {
		if i > 0 {
			out += " and "
		}
		out += b.Key()
	}
	return out
}
