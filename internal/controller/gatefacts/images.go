package gatefacts

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/gate/look"
	"github.com/refit-dev/refit/internal/source/imagereport/read"
	"github.com/refit-dev/refit/internal/source/lint"
)

// survey is what one walk over all pods found, and what the lint says of those
// that a node needs.
type survey struct {
	look.Survey
	images []gate.ImageRisk
}

func surveyOf(ctx context.Context, c client.Reader, drained map[string]bool, rules look.Rules) (survey, error) {
	needed := map[string]lint.Object{}
	s, err := look.Pods(ctx, c, drained, rules, func(p *corev1.Pod) { note(needed, p) })
	return survey{s, risks(needed)}, err
}

// note remembers a pod that a node needs; those of one owner are alike.
func note(needed map[string]lint.Object, p *corev1.Pod) {
	pod, ok := read.Pod(p)
	if !ok || !pod.Critical {
		return
	}
	owner := pod.Owner()
	if _, known := needed[owner]; known {
		return
	}
	o := lint.Object{Kind: pod.OwnerKind, Namespace: pod.Namespace, Name: pod.OwnerName, Static: pod.Static, Critical: true, Replicas: -1,
		Off: lint.OffOf(p.Annotations[lint.OffAnnotation])}
	if pod.Static || pod.OwnerKind == "" {
		o.Kind, o.Name = "Pod", pod.Name
	}
	for _, u := range pod.Uses {
		o.Uses = append(o.Uses, lint.Use{ImageUse: u})
	}
	needed[owner] = o
}

// risks are the errors of the two rules that are about a restart.
func risks(needed map[string]lint.Object) []gate.ImageRisk {
	var objects []lint.Object
	for _, owner := range slices.Sorted(maps.Keys(needed)) {
		objects = append(objects, needed[owner])
	}
	var out []gate.ImageRisk
	for _, f := range lint.Check(objects, lint.Site{}, lint.Config{}).Findings {
		if f.Severity == lint.Error && (f.Rule == "T01" || f.Rule == "T02") {
			out = append(out, gate.ImageRisk{Rule: f.Rule, Object: f.Object, Container: f.Container, Image: f.Image, Always: f.Rule == "T02", Message: f.Message, Fix: f.Fix})
		}
	}
	return out
}
