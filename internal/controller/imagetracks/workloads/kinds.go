package workloads

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deployment says how it replaces its pods, and whether it has.
func deployment(w *Workload, d *appsv1.Deployment) {
	replicas := orOne(d.Spec.Replicas)
	w.TakesDown, w.Strategy = resolveRollingUpdate(d.Spec.Strategy.RollingUpdate, replicas)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		w.TakesDown, w.Strategy = int(replicas), "Recreate"
	}
	st := &d.Status
	w.Settled = st.ObservedGeneration >= d.Generation && st.UpdatedReplicas == replicas && st.AvailableReplicas == replicas && st.Replicas == replicas
	w.Progress = fmt.Sprintf("%d of %d pods have the new template, %d are available", st.UpdatedReplicas, replicas, st.AvailableReplicas)
}

// resolveRollingUpdate resolves a strategy as the Deployment controller does: the number of
// unavailable pods is rounded down, and at least one of the two numbers is not 0.
func resolveRollingUpdate(s *appsv1.RollingUpdateDeployment, replicas int32) (takesDown int, text string) {
	quarter := intstr.FromString("25%")
	unavailable, surge := &quarter, &quarter
	if s != nil && s.MaxUnavailable != nil {
		unavailable = s.MaxUnavailable
	}
	if s != nil && s.MaxSurge != nil {
		surge = s.MaxSurge
	}
	takesDown = scaled(unavailable, replicas, false)
	if takesDown == 0 && scaled(surge, replicas, true) == 0 {
		takesDown = 1
	}
	return takesDown, "maxUnavailable " + unavailable.String()
}

func scaled(v *intstr.IntOrString, of int32, up bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(v, int(of), up)
	if err != nil {
		return int(of)
	}
	return n
}

func orOne(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func statefulSet(w *Workload, s *appsv1.StatefulSet) {
	replicas := orOne(s.Spec.Replicas)
	st := &s.Status
	w.TakesDown, w.Strategy = min(1, int(replicas)), "one after the other"
	updated := replicas
	if ru := s.Spec.UpdateStrategy.RollingUpdate; ru != nil {
		if ru.MaxUnavailable != nil {
			w.TakesDown, w.Strategy = max(1, scaled(ru.MaxUnavailable, replicas, true)), "maxUnavailable "+ru.MaxUnavailable.String()
		}
		if ru.Partition != nil { // a person holds the pods below it back
			updated = max(0, replicas-*ru.Partition)
		}
	}
	w.OnDelete = s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	w.wanted, w.Observed = int(replicas), st.ObservedGeneration >= s.Generation
	w.Settled = st.ObservedGeneration >= s.Generation && st.Replicas == replicas && st.ReadyReplicas == replicas && (w.OnDelete || st.UpdatedReplicas >= updated)
	w.Progress = fmt.Sprintf("%d of %d pods have the new template, %d are ready", st.UpdatedReplicas, updated, st.ReadyReplicas)
}

func daemonSet(w *Workload, d *appsv1.DaemonSet) {
	st := &d.Status
	w.TakesDown, w.Strategy = 1, "maxUnavailable 1"
	if ru := d.Spec.UpdateStrategy.RollingUpdate; ru != nil {
		if ru.MaxUnavailable != nil {
			w.TakesDown, w.Strategy = scaled(ru.MaxUnavailable, st.DesiredNumberScheduled, true), "maxUnavailable "+ru.MaxUnavailable.String()
		}
		if ru.MaxSurge != nil && scaled(ru.MaxSurge, st.DesiredNumberScheduled, true) > 0 {
			w.TakesDown, w.Strategy = 0, "maxSurge "+ru.MaxSurge.String()
		}
	}
	w.OnDelete = d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	w.wanted, w.Observed = int(st.DesiredNumberScheduled), st.ObservedGeneration >= d.Generation
	w.Settled = st.ObservedGeneration >= d.Generation && st.NumberAvailable == st.DesiredNumberScheduled && (w.OnDelete || st.UpdatedNumberScheduled == st.DesiredNumberScheduled)
	w.Progress = fmt.Sprintf("%d of %d pods have the new template, %d are available", st.UpdatedNumberScheduled, st.DesiredNumberScheduled, st.NumberAvailable)
}

// Marks that tools leave on what they own and would change back.
var (
	ownerMarks = []struct{ key, tool string }{
		{"argocd.argoproj.io/instance", "Argo CD"}, {"argocd.argoproj.io/tracking-id", "Argo CD"},
		{"kustomize.toolkit.fluxcd.io/name", "Flux"}, {"helm.toolkit.fluxcd.io/name", "Flux"},
		{"meta.helm.sh/release-name", "Helm"}, {"objectset.rio.cattle.io/id", "Fleet"}, {"kapp.k14s.io/app", "kapp"},
	}
	ownerManagers = map[string]string{"argocd-controller": "Argo CD", "argocd-application-controller": "Argo CD", "kustomize-controller": "Flux",
		"helm-controller": "Flux", "helm": "Helm", "Helm": "Helm", "kapp": "kapp", "fleetagent": "Fleet"}
)

// ownerOf is the tool that a workload belongs to, by its marks, or because the
// tool wrote its template; "" if there is none.
func ownerOf(o client.Object) string {
	for _, m := range ownerMarks {
		if o.GetLabels()[m.key] != "" || o.GetAnnotations()[m.key] != "" {
			return m.tool
		}
	}
	if o.GetLabels()["app.kubernetes.io/managed-by"] == "Helm" {
		return "Helm"
	}
	for _, f := range o.GetManagedFields() {
		if tool := ownerManagers[f.Manager]; tool != "" && f.Subresource == "" && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:image"`) {
			return tool
		}
	}
	if c := controllerOf(o); c != "" {
		return c
	}
	return ""
}

// controllerOf is the object that made a workload and keeps it as it is.
func controllerOf(o client.Object) string {
	for _, r := range o.GetOwnerReferences() {
		if r.Controller != nil && *r.Controller {
			return r.Kind + " " + r.Name
		}
	}
	return ""
}
