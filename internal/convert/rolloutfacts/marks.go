package rolloutfacts

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/rollout/forecast"
)

// Mark is what a node carries while an update is at work on it.
type Mark struct {
	// UID of the ClusterUpdate.
	UID     string
	Attempt rollout.Attempt
	// At is when this attempt began.
	At time.Time
}

func (m Mark) String() string {
	return fmt.Sprintf("%s %d %s %d %d", m.UID, m.Attempt.Number, m.At.UTC().Format(time.RFC3339), m.Attempt.Retry, m.Attempt.Try)
}

// MarkOf reads a node's mark; nil if it has none. One without retry and try is
// from a controller that counted one attempt for each retry.
func MarkOf(n *corev1.Node) *Mark {
	f := strings.Fields(n.Annotations[v1alpha1.AnnotationUpdating])
	if len(f) == 0 {
		return nil
	}
	m := &Mark{UID: f[0]}
	if len(f) >= 3 {
		m.Attempt = counted(number(f[1]), 0, 0) // an unreadable attempt is 0: the node is marked again
		m.At, _ = time.Parse(time.RFC3339, f[2])
	}
	if len(f) >= 5 {
		m.Attempt = counted(m.Attempt.Number, number(f[3]), number(f[4]))
	}
	return m
}

func number(s string) int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// counted is an attempt; one without a try is from a controller that counted one
// for each retry.
func counted(number, retry, try int32) rollout.Attempt {
	if try == 0 && number > 0 {
		return rollout.Attempt{Number: number, Retry: number - 1, Try: 1}
	}
	return rollout.Attempt{Number: number, Retry: retry, Try: try}
}

// Record is how the last update of a node went.
type Record struct {
	UID        string
	Start, End time.Time
}

func (r Record) String() string {
	return fmt.Sprintf("%s %s %s", r.UID, r.Start.UTC().Format(time.RFC3339), r.End.UTC().Format(time.RFC3339))
}

// RecordOf reads a node's record; nil if it has none that makes sense.
func RecordOf(n *corev1.Node) *Record {
	f := strings.Fields(n.Annotations[v1alpha1.AnnotationUpdated])
	if len(f) != 3 {
		return nil
	}
	start, err1 := time.Parse(time.RFC3339, f[1])
	end, err2 := time.Parse(time.RFC3339, f[2])
	if err1 != nil || err2 != nil || end.Before(start) {
		return nil
	}
	return &Record{f[0], start, end}
}

// Learned is how long the nodes of this cluster took, each the last time it was
// updated.
func Learned(nodes []*corev1.Node) rollout.Learned {
	var cps, workers []time.Duration
	for _, n := range nodes {
		r := RecordOf(n)
		switch {
		case r == nil:
		case ControlPlane(n):
			cps = append(cps, r.End.Sub(r.Start))
		default:
			workers = append(workers, r.End.Sub(r.Start))
		}
	}
	return rollout.Learned{ControlPlane: forecast.Learn(cps), Worker: forecast.Learn(workers)}
}
