package osbuild

import (
	"fmt"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// EventRecorder tells of builds.
type EventRecorder struct {
	events events.EventRecorder

	builds           *prometheus.GaugeVec
	ended, retries   *prometheus.CounterVec
	copied           *prometheus.CounterVec
	reused, unbooted *prometheus.CounterVec
	seconds          *prometheus.HistogramVec
	waited, pushed   *prometheus.HistogramVec
	nodes            *prometheus.GaugeVec
}

// durations of builds, in seconds: a layer takes one, a Containerfile minutes.
var durations = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 2400, 3600}

// NewEventRecorder makes the metrics and registers them.
func NewEventRecorder(recorder events.EventRecorder, reg prometheus.Registerer) *EventRecorder {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "refit", Name: name, Help: help}, labels)
	}
	t := &EventRecorder{events: recorder,
		builds:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: "os_builds", Help: "OSBuilds that there are, by phase: Prepared ones wait, Building ones run."}, []string{"os_image", "phase"}),
		ended:    counter("os_builds_ended_total", "Builds of OS images that ended, by builder and how.", "os_image", "builder", "phase"),
		retries:  counter("os_build_retries_total", "Tries of builds that failed because of their surroundings.", "os_image"),
		copied:   counter("os_build_copied_bytes_total", "Bytes of bases that had to be copied to another registry.", "os_image"),
		reused:   counter("os_builds_reused_total", "Times that a pool returned to the image of an earlier build, without a new build.", "os_image"),
		unbooted: counter("os_images_not_booted_total", "Times that a pool's nodes did not have to boot a new image, because it differs only in what agents write.", "os_image"),
		seconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "refit", Name: "os_build_duration_seconds", Help: "How long builds took, from their start to their end.", Buckets: durations}, []string{"builder", "phase"}),
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "refit", Name: name, Help: help, Buckets: durations}, []string{"builder"})
	}
	t.waited = histogram("os_build_wait_seconds", "How long builds waited from their creation to their start.")
	t.pushed = histogram("os_build_push_seconds", "How long the push of a built image to its registry took; of several platforms the slowest.")
	t.nodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: "os_image_nodes", Help: "Nodes with an agent whose pool has an OS image, by state: Ready ones hold, staged or booted it, Missing ones do not have it yet."}, []string{"os_image", "pool", "state"})
	reg.MustRegister(t.builds, t.ended, t.retries, t.copied, t.reused, t.unbooted, t.seconds, t.waited, t.pushed, t.nodes)
	return t
}

// Count the builds there are, and the nodes that have the image of their pool.
func (t *EventRecorder) Count(list []v1alpha1.OSBuild, images []v1alpha1.OSImage) {
	if t == nil {
		return
	}
	t.nodes.Reset()
	for i := range images {
		for _, p := range images[i].Status.Pools {
			var ready, all int
			if n, _ := fmt.Sscanf(p.Prepulled, "%d/%d", &ready, &all); n == 2 {
				t.nodes.WithLabelValues(images[i].Name, p.Name, "Ready").Set(float64(ready))
				t.nodes.WithLabelValues(images[i].Name, p.Name, "Missing").Set(float64(max(0, all-ready)))
			}
		}
	}
	t.builds.Reset()
	for i := range list {
		phase := list[i].Status.Phase
		if phase == "" {
			phase = v1alpha1.BuildPrepared
		}
		t.builds.WithLabelValues(list[i].Spec.OSImage, phase).Inc()
	}
}

// Changed tells what a step did to a build: b is as it was before, st what is written.
func (t *EventRecorder) Changed(b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus) {
	if t == nil {
		return
	}
	if more := st.Attempts - b.Status.Attempts; more > 0 {
		t.retries.WithLabelValues(b.Spec.OSImage).Add(float64(more))
	}
	if st.Phase == b.Status.Phase {
		return
	}
	took := ""
	if st.FinishedAt != nil && st.StartedAt != nil {
		d := st.FinishedAt.Sub(st.StartedAt.Time)
		t.ended.WithLabelValues(b.Spec.OSImage, b.Spec.Builder, st.Phase).Inc()
		t.seconds.WithLabelValues(b.Spec.Builder, st.Phase).Observe(d.Seconds())
		took = " after " + d.Round(time.Second).String()
	}
	switch st.Phase {
	case v1alpha1.BuildBuilding:
		if st.StartedAt != nil {
			t.waited.WithLabelValues(b.Spec.Builder).Observe(max(0, st.StartedAt.Sub(b.CreationTimestamp.Time).Seconds()))
		}
		t.event(b, corev1.EventTypeNormal, v1alpha1.ReasonImageBuilding, "it is built with "+b.Spec.Builder+": "+b.Spec.Why)
	case v1alpha1.BuildSucceeded:
		t.copied.WithLabelValues(b.Spec.OSImage).Add(float64(st.Copied))
		t.event(b, corev1.EventTypeNormal, v1alpha1.ReasonImageBuilt, fmt.Sprintf("the image is %s@%s%s, %d bytes of the base were copied; %s", b.Spec.Repository, st.Digest, took, st.Copied, st.PackagesSay))
	case v1alpha1.BuildFailed:
		t.event(b, corev1.EventTypeWarning, v1alpha1.ReasonImageBuildFailed, fmt.Sprintf("it failed%s, at try %d: %s", took, max(1, st.Attempts), text.Tail(st.Log, maxNote/2)))
	case v1alpha1.BuildInterrupted:
		t.event(b, corev1.EventTypeNormal, v1alpha1.ReasonBuildInterrupted, "its inputs are not wanted any more; it ended"+took)
	}
}

// Pushed counts how long the push of a built image took.
func (t *EventRecorder) Pushed(b *v1alpha1.OSBuild, took time.Duration) {
	if t != nil {
		t.pushed.WithLabelValues(b.Spec.Builder).Observe(took.Seconds())
	}
}

// Reused tells that a pool has the image of an earlier build again.
func (t *EventRecorder) Reused(o *v1alpha1.OSImage, pool, build string) {
	if t == nil {
		return
	}
	t.reused.WithLabelValues(o.Name).Inc()
	t.events.Eventf(o, nil, corev1.EventTypeNormal, v1alpha1.ReasonImageReused, "Build", "%s", truncateNote("pool "+pool+" has the image of build "+build+" again, and nothing was built"))
}

// NotBooted tells that a pool's nodes need not boot what was built.
func (t *EventRecorder) NotBooted(o *v1alpha1.OSImage, pool, why string) {
	if t == nil {
		return
	}
	t.unbooted.WithLabelValues(o.Name).Inc()
	t.events.Eventf(o, nil, corev1.EventTypeNormal, v1alpha1.ReasonImageNotBooted, "Build", "%s", truncateNote("pool "+pool+": "+why))
}

func (t *EventRecorder) event(b *v1alpha1.OSBuild, kind, reason, message string) {
	t.events.Eventf(b, nil, kind, reason, "Build", "%s", truncateNote(message))
}

// maxNote is how long the text of an event may be, in bytes.
const maxNote = 1000

func truncateNote(s string) string { return text.Truncate(strings.ToValidUTF8(s, ""), maxNote) }
