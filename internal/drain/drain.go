package drain

import (
	"fmt"
	"sort"

	"github.com/refit-dev/refit/internal/model"
)

// Pod is what the decision needs of a pod.
type Pod struct {
	Namespace, Name, UID string
	// OwnerKind and OwnerName of the controller that would make it again; empty
	// if there is none.
	OwnerKind, OwnerName string
	// Mirror pods show static pods; the kubelet alone decides about them.
	Mirror bool
	// Finished pods have succeeded or failed.
	Finished bool
	// Deleting pods are on their way out.
	Deleting bool
	// Refit is true for refit's own pods.
	Refit bool
	// EmptyDir is true if the pod has data that goes with it.
	EmptyDir bool
	// EvictAnyway is true if a person marked a pod without owner as expendable.
	EvictAnyway bool
}

// Key is namespace/name.
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// Object is the pod as a verdict names it.
func (p Pod) Object() string { return "Pod/" + p.Key() }

// Owner for people: "ReplicaSet app-6f".
func (p Pod) Owner() string {
	if p.OwnerKind == "" {
		return "nobody"
	}
	return p.OwnerKind + " " + p.OwnerName
}

// Reasons why a pod stays.
const (
	SkipDaemonSet = "DaemonSet"
	SkipMirror    = "static pod"
	SkipFinished  = "finished"
	SkipRefit     = "refit's own"
)

// Skip is a pod that stays.
type Skip struct {
	Pod    string
	Reason string
}

// Decision says what to do with every pod.
type Decision struct {
	// Evict through the Eviction API.
	Evict []Pod
	// Leaving pods were evicted and are still ending.
	Leaving []Pod
	// Skipped pods stay.
	Skipped []Skip
	// Refused pods need a person.
	Refused []model.Verdict
}

// Empty reports whether the node is drained.
func (d Decision) Empty() bool { return d.Left() == 0 }

// Left counts the pods that must still go.
func (d Decision) Left() int { return len(d.Evict) + len(d.Leaving) + len(d.Refused) }

const reasonDrainBlocked = "DrainBlocked"

// Decide decides over the pods of one node.
func Decide(pods []Pod) Decision {
	pods = append([]Pod(nil), pods...)
	sort.Slice(pods, func(i, j int) bool { return pods[i].Key() < pods[j].Key() })
	var d Decision
	for _, p := range pods {
		reason := stays(p)
		switch {
		case reason != "":
			d.Skipped = append(d.Skipped, Skip{p.Key(), reason})
		case p.Deleting:
			d.Leaving = append(d.Leaving, p)
		case p.OwnerKind == "" && !p.EvictAnyway:
			d.Refused = append(d.Refused, model.Verdict{
				Reason:  reasonDrainBlocked,
				Message: fmt.Sprintf("pod %s has no owner that would make it again", p.Key()),
				Fix:     "delete the pod, or annotate it with refit.dev/evict=true if it may be lost",
				Object:  p.Object(),
			})
		default:
			d.Evict = append(d.Evict, p)
		}
	}
	return d
}

func stays(p Pod) string {
	switch {
	case p.Mirror || p.OwnerKind == "Node":
		return SkipMirror
	case p.OwnerKind == "DaemonSet":
		return SkipDaemonSet
	case p.Refit:
		return SkipRefit
	case p.Finished:
		return SkipFinished
	}
	return ""
}

// Budget is a disruption budget that protects a pod.
type Budget struct {
	Namespace, Name string
	// Allowed disruptions now; Healthy of Expected pods, Wanted at least.
	Allowed, Healthy, Wanted, Expected int32
}

// Impossible reports whether the budget allows no eviction even when all its
// pods are healthy.
func (b Budget) Impossible() bool { return b.Expected > 0 && b.Wanted >= b.Expected }

const reasonDisruptionBudget = "DisruptionBudget"

// Blocked explains why the Eviction API refused a pod. It waits: an eviction is
// tried again every few seconds.
func Blocked(node string, p Pod, budgets []Budget) model.Verdict {
	v := model.Verdict{Reason: reasonDisruptionBudget, Object: p.Object(), Waiting: true}
	if len(budgets) == 0 {
		v.Message = fmt.Sprintf("node %s: the API server holds back the eviction of pod %s (owner %s)", node, p.Key(), p.Owner())
		return v
	}
	b := budgets[0]
	v.Message = fmt.Sprintf("node %s: pod %s (owner %s) is protected by PodDisruptionBudget %s/%s, which allows %d disruptions: %d of %d pods are healthy, %d are wanted",
		node, p.Key(), p.Owner(), b.Namespace, b.Name, b.Allowed, b.Healthy, b.Expected, b.Wanted)
	v.Fix = "make more pods of " + p.Owner() + " healthy or add replicas"
	if b.Impossible() {
		v.Waiting = false
		v.Fix = fmt.Sprintf("this budget can never be met: lower minAvailable (or raise maxUnavailable) of %s/%s, or add replicas to %s", b.Namespace, b.Name, p.Owner())
	}
	if len(budgets) > 1 {
		v.Waiting = false
		v.Fix = fmt.Sprintf("the API server evicts no pod that has two budgets: delete one of %s and %s", b.Name, budgets[1].Name)
	}
	return v
}

// DataLoss names the pods whose emptyDir data goes with them, for an event.
func (d Decision) DataLoss() []string {
	var out []string
	for _, p := range d.Evict {
		if p.EmptyDir {
			out = append(out, p.Key())
		}
	}
	return out
}
