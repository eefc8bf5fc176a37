package drain

import (
	"fmt"
	"sort"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Pod is what the decision needs of a pod.
type Pod struct {
	Namespace, Name, UID string
	// Node it runs on.
	Node string
	// OwnerKind and OwnerName of the controller that would make it again; empty
	// if there is none.
	OwnerKind, OwnerName string
	// Mirror pods show static pods; the kubelet alone decides about them.
	Mirror bool
	// Finished pods have succeeded or failed.
	Finished bool
	// Ready as its own probes say.
	Ready bool
	// Deleting pods are on their way out since that time (the moment the
	// deletion was asked for), with Grace to end and Finalizers that must go.
	Deleting   bool
	Since      time.Time
	Grace      time.Duration
	Finalizers []string
	// Refit is true for refit's own pods.
	Refit bool
	// EmptyDir is true if the pod has data that goes with it.
	EmptyDir bool
	// EvictAnyway is true if a person marked a pod without owner as expendable,
	// on the pod or for this run.
	EvictAnyway bool
	// StaysByRun is true if this run's skip selector picks the pod.
	StaysByRun bool
	// Nowhere: no other node that takes pods fits it by its nodeSelector and taints.
	// It may be false for a pod that fits nowhere for another reason.
	Nowhere bool
	// Budgets that protect the pod.
	Budgets []Budget
}

// Key is namespace/name.
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// Object is the pod as a blocker names it.
func (p Pod) Object() string { return "Pod/" + p.Key() }

// Owner for people: "ReplicaSet app-6f".
func (p Pod) Owner() string {
	if p.OwnerKind == "" {
		return "nobody"
	}
	return p.OwnerKind + " " + p.OwnerName
}

// Options are what a person set for this run.
type Options struct {
	// KeepEmptyDirData refuses pods whose emptyDir data would be gone.
	KeepEmptyDirData bool
}

// Reasons why a pod stays.
const (
	SkipDaemonSet = "DaemonSet"
	SkipMirror    = "static pod"
	SkipFinished  = "finished"
	SkipRefit     = "refit's own"
	SkipRun       = "this run's skipSelector"
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
	Refused []model.Blocker
}

// Empty reports whether the node is drained.
func (d Decision) Empty() bool { return d.Left() == 0 }

// Left counts the pods that must still go.
func (d Decision) Left() int { return len(d.Evict) + len(d.Leaving) + len(d.Refused) }

const (
	reasonDrainBlocked        = "DrainBlocked"
	reasonDisruptionBudget    = "DisruptionBudget"
	reasonPodStuckTerminating = "PodStuckTerminating"
	reasonDraining            = "Draining"
)

// Decide decides over the pods of one node with the usual rules.
func Decide(pods []Pod) Decision { return DecideWith(pods, Options{}) }

// DecideWith decides with what a person set for this run.
func DecideWith(pods []Pod, o Options) Decision {
	pods = append([]Pod(nil), pods...)
	sort.Slice(pods, func(i, j int) bool { return pods[i].Key() < pods[j].Key() })
	var d Decision
	for _, p := range pods {
		if reason := skipReason(p); reason != "" {
			d.Skipped = append(d.Skipped, Skip{p.Key(), reason})
			continue
		}
		if p.Deleting {
			d.Leaving = append(d.Leaving, p)
			continue
		}
		if v := refuseEviction(p, o); v != nil {
			d.Refused = append(d.Refused, *v)
			continue
		}
		d.Evict = append(d.Evict, p)
	}
	return d
}

// refuseEviction says why a pod is not even asked to go; nil if it is.
func refuseEviction(p Pod, o Options) *model.Blocker {
	v := &model.Blocker{Reason: reasonDrainBlocked, Object: p.Object()}
	switch {
	case p.OwnerKind == "" && !p.EvictAnyway:
		v.Message = fmt.Sprintf("pod %s has no owner that would make it again", p.Key())
		v.Fix = "delete the pod, or annotate it with refit.dev/evict=true if it may be lost"
	case p.EmptyDir && o.KeepEmptyDirData:
		v.Message = fmt.Sprintf("pod %s (owner %s) has data in an emptyDir, which this update keeps (spec.drain.keepEmptyDirData)", p.Key(), p.Owner())
		v.Fix = "save the data and delete the pod, or set spec.drain.keepEmptyDirData to false: the data is gone with the pod"
	default:
		return nil
	}
	return v
}

func skipReason(p Pod) string {
	switch {
	case p.Mirror || p.OwnerKind == "Node":
		return SkipMirror
	case p.OwnerKind == "DaemonSet":
		return SkipDaemonSet
	case p.Refit:
		return SkipRefit
	case p.Finished:
		return SkipFinished
	case p.StaysByRun:
		return SkipRun
	}
	return ""
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
