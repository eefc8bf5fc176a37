package gatefacts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// survey is what one walk over all pods found, and what the lint says of those
// that a node needs.
type survey struct {
	clusterfacts.Survey
	images []gate.ImageRisk
}

func surveyOf(ctx context.Context, c client.Reader, drained map[string]bool, rules clusterfacts.Rules) (survey, error) {
	needed := map[string]lint.Object{}
	asking := pullCounter{always: map[string]int{}, resolvers: map[string]gate.Resolver{}}
	s, err := clusterfacts.SurveyPods(ctx, c, drained, rules, func(p *corev1.Pod) {
		addImage(needed, p)
		asking.addPod(p)
	})
	asking.writeTo(&s.Pulls)
	return survey{s, restartRisks(needed)}, err
}

// pullCounter is who asks registries: pods with policy Always by who makes them, and known
// products that resolve tags.
type pullCounter struct {
	always    map[string]int
	resolvers map[string]gate.Resolver
}

func (x *pullCounter) addPod(p *corev1.Pod) {
	pod, ok := auditfacts.Pod(p)
	if !ok {
		return
	}
	owner, always := pod.Owner(), false
	for _, u := range pod.Uses {
		always = always || u.Policy == model.PullAlways
		ref, err := imagetag.ParseRef(u.Image)
		if err != nil {
			continue
		}
		if r := lint.ResolverOfImage(ref.Repository); r != nil {
			x.resolvers[owner] = gate.Resolver{Object: strings.Replace(owner, " ", "/", 1), Message: owner + " is of " + r.Product + ": " + r.Does, Fix: r.Fix}
		}
	}
	if always {
		x.always[owner]++
	}
}

// maxOwners with policy Always are named.
const maxOwners = 5

func (x *pullCounter) writeTo(p *gate.Pulls) {
	p.Always = nil
	for _, owner := range slices.Sorted(maps.Keys(x.always)) {
		if len(p.Always) == maxOwners {
			p.Always = append(p.Always, fmt.Sprintf("and of %d more", len(x.always)-maxOwners))
			break
		}
		p.Always = append(p.Always, fmt.Sprintf("%s (%d)", owner, x.always[owner]))
	}
	for _, owner := range slices.Sorted(maps.Keys(x.resolvers)) {
		p.Resolvers = append(p.Resolvers, x.resolvers[owner])
	}
}

// resolvingHooks are the webhooks of known products that resolve tags and fail closed:
// they refuse new pods when no registry answers them.
func resolvingHooks(hooks []gate.Webhook) []gate.Resolver {
	var out []gate.Resolver
	for _, w := range hooks {
		if r := lint.ResolverOfHook(w.Name, w.Configuration, w.Service); r != nil && w.Pods {
			out = append(out, gate.Resolver{Object: w.Configuration, Message: fmt.Sprintf("webhook %s of %s is of %s and fails closed: %s", w.Name, w.Configuration, r.Product, r.Does), Fix: r.Fix})
		}
	}
	slices.SortFunc(out, func(a, b gate.Resolver) int { return strings.Compare(a.Message, b.Message) })
	return out
}

// addImage remembers a pod that a node needs; those of one owner are alike.
func addImage(needed map[string]lint.Object, p *corev1.Pod) {
	pod, ok := auditfacts.Pod(p)
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

// restartRisks are the errors of the two rules that are about a restart.
func restartRisks(needed map[string]lint.Object) []gate.ImageRisk {
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
