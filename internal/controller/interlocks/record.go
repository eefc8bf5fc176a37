package interlocks

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// What is held back.
const (
	// scaleDownDisabled keeps the cluster autoscaler from removing a node.
	scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// doNotDisrupt keeps Karpenter from disrupting a node.
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
	// nodePoolLabel is on every node that Karpenter made.
	nodePoolLabel = "karpenter.sh/nodepool"
	// skipRemediation keeps machine health checks away from a Machine.
	skipRemediation = "cluster.x-k8s.io/skip-remediation"
	// machineName and machineNamespace are what Cluster API writes on a node.
	machineName      = "cluster.x-k8s.io/machine"
	machineNamespace = "cluster.x-k8s.io/cluster-namespace"
)

// Record is one change of refit, to be undone.
type Record struct {
	// By is the UID of the ClusterUpdate.
	By string `json:"by"`
	// Before is the value that was there; absent if there was none.
	Before *string `json:"before,omitempty"`
	// Set is what refit put there.
	Set string `json:"set"`
}

// records reads what is held on an object; an annotation that is not ours to
// read is nothing held.
func records(annotations map[string]string) map[string]Record {
	out := map[string]Record{}
	if text := annotations[v1alpha1.AnnotationInterlock]; text != "" {
		if json.Unmarshal([]byte(text), &out) != nil {
			return map[string]Record{}
		}
	}
	return out
}

func write(annotations map[string]string, rs map[string]Record) {
	if len(rs) == 0 {
		delete(annotations, v1alpha1.AnnotationInterlock)
		return
	}
	b, err := json.Marshal(rs)
	if err != nil {
		panic(err) // strings only
	}
	annotations[v1alpha1.AnnotationInterlock] = string(b)
}

// hold sets annotations for an update and records what was there. A key that has
// a value already, or that was recorded before, is left as it is.
func hold(annotations map[string]string, by string, want map[string]string) (map[string]string, bool) {
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	rs := records(out)
	changed := false
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if old, held := rs[key]; held {
			if old.By != by { // the next update goes on holding
				old.By, changed = by, true
				rs[key] = old
			}
			continue
		}
		if _, theirs := out[key]; theirs {
			continue
		}
		rs[key] = Record{By: by, Set: want[key]}
		out[key], changed = want[key], true
	}
	if !changed {
		return annotations, false
	}
	write(out, rs)
	return out, true
}

// restore sets the prior values where refit's value has not changed.
func restore(annotations map[string]string) (map[string]string, bool) {
	if _, held := annotations[v1alpha1.AnnotationInterlock]; !held {
		return annotations, false
	}
	out := maps.Clone(annotations)
	for key, r := range records(out) {
		if out[key] != r.Set {
			continue // it changed since: another owner has it
		}
		if r.Before == nil {
			delete(out, key)
			continue
		}
		out[key] = *r.Before
	}
	delete(out, v1alpha1.AnnotationInterlock)
	delete(out, v1alpha1.AnnotationInterlockUntil)
	return out, true
}

// owner is the update that an object is held for, empty if none.
func owner(annotations map[string]string) string {
	for _, r := range records(annotations) {
		return r.By
	}
	return ""
}

// until is when a mark runs out; zero if it does not say.
func until(annotations map[string]string) time.Time {
	t, _ := time.Parse(time.RFC3339, annotations[v1alpha1.AnnotationInterlockUntil]) // unreadable: it has run out
	return t
}
