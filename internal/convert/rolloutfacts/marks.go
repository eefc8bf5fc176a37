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

// Mark is the annotation of a node that an update works on.
type Mark struct {
	// UID is that of the ClusterUpdate.
	UID     string
	Attempt rollout.Attempt
	// At is when this attempt started.
	At time.Time
}

func (m Mark) String() string {
	return fmt.Sprintf("%s %d %s %d %d", m.UID, m.Attempt.Number, m.At.UTC().Format(time.RFC3339), m.Attempt.Retry, m.Attempt.Try)
}

// MarkOf reads a node's mark, nil if it has none. A mark without retry and try is from an older
// controller, which counted one attempt for each retry.
func MarkOf(n *corev1.Node) *Mark {
	f := strings.Fields(n.Annotations[v1alpha1.AnnotationUpdating])
	if len(f) == 0 {
		return nil
	}
	m := &Mark{UID: f[0]}
	if len(f) >= 3 {
		m.Attempt = attemptOf(parseInt32(f[1]), 0, 0) // an invalid attempt becomes 0, so the node is marked again
		m.At, _ = time.Parse(time.RFC3339, f[2])
	}
	if len(f) >= 5 {
		m.Attempt = attemptOf(m.Attempt.Number, parseInt32(f[3]), parseInt32(f[4]))
	}
	return m
}

func parseInt32(s string) int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// attemptOf returns an attempt. One without a try is from an older controller, which counted
// one attempt for each retry.
func attemptOf(number, retry, try int32) rollout.Attempt {
	if try == 0 && number > 0 {
		return rollout.Attempt{Number: number, Retry: number - 1, Try: 1}
	}
	return rollout.Attempt{Number: number, Retry: retry, Try: try}
}

// Record is the annotation with the start and end of a node's last update.
type Record struct {
	UID        string
	Start, End time.Time
}

func (r Record) String() string {
	return fmt.Sprintf("%s %s %s", r.UID, r.Start.UTC().Format(time.RFC3339), r.End.UTC().Format(time.RFC3339))
}

// RecordOf reads a node's record, nil if it has no valid one.
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

// Learned returns how long the last updates of this cluster's nodes took.
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
