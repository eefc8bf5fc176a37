package auditfacts

import (
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/model"
)

// workloadTemplate is a workload's pod template.
type workloadTemplate struct {
	kind string
	meta *metav1.ObjectMeta
	pod  *corev1.PodTemplateSpec
	// object is the workload for the lint, without the pod's values.
	object lint.Object
}

// eachTemplate calls see for each workload of the cluster.
func (o *Objects) eachTemplate(see func(workloadTemplate)) {
	for i := range o.Deployments {
		d := &o.Deployments[i]
		surges := d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
		if r := d.Spec.Strategy.RollingUpdate; r != nil && isZero(r.MaxSurge) {
			surges = false
		}
		see(workloadTemplate{"Deployment", &d.ObjectMeta, &d.Spec.Template, lint.Object{Replicas: replicas(d.Spec.Replicas), Surges: surges}})
	}
	for i := range o.StatefulSet {
		s := &o.StatefulSet[i]
		see(workloadTemplate{"StatefulSet", &s.ObjectMeta, &s.Spec.Template, lint.Object{Replicas: replicas(s.Spec.Replicas)}})
	}
	for i := range o.DaemonSets {
		d := &o.DaemonSets[i]
		r := d.Spec.UpdateStrategy.RollingUpdate
		after := d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType && (r == nil || r.MaxSurge == nil || isZero(r.MaxSurge))
		see(workloadTemplate{"DaemonSet", &d.ObjectMeta, &d.Spec.Template, lint.Object{Replicas: -1, AfterKill: after}})
	}
	for i := range o.CronJobs {
		c := &o.CronJobs[i]
		see(workloadTemplate{"CronJob", &c.ObjectMeta, &c.Spec.JobTemplate.Spec.Template, lint.Object{Replicas: -1}})
	}
}

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

func isZero(v *intstr.IntOrString) bool {
	return v != nil && (v.Type == intstr.Int && v.IntVal == 0 || v.Type == intstr.String && v.StrVal == "0%")
}

// templates returns those of workloads without a running pod: scaled to zero, or CronJobs
// between two runs.
func (o *Objects) templates(pods []model.ImagePod) []model.ImagePod {
	running := map[string]bool{}
	for i := range pods {
		running[pods[i].OwnerKind+"/"+pods[i].Namespace+"/"+pods[i].OwnerName] = true
	}
	var out []model.ImagePod
	o.eachTemplate(func(t workloadTemplate) {
		if running[t.kind+"/"+t.meta.Namespace+"/"+t.meta.Name] {
			return
		}
		p := model.ImagePod{Namespace: t.meta.Namespace, Name: t.meta.Name, OwnerKind: t.kind, OwnerName: t.meta.Name}
		addSpec(&p, &t.pod.Spec)
		out = append(out, p)
	})
	return out
}

// Lint returns the objects for the lint rules: workloads, pods without a listed workload,
// budgets, kubelets, admission webhooks.
func (o *Objects) Lint() []lint.Object {
	var out []lint.Object
	known := map[string]bool{}
	o.eachTemplate(func(t workloadTemplate) {
		known[key(t.kind, t.meta.Namespace, t.meta.Name)] = true
		out = append(out, lintObject(t.object, t.kind, t.meta, t.pod.Labels, &t.pod.Spec))
	})
	for i := range o.Pods {
		if object, ok := unmanagedPod(&o.Pods[i], known); ok {
			out = append(out, object)
		}
	}
	for i := range o.Budgets {
		out = append(out, lintBudget(&o.Budgets[i].ObjectMeta, o.Budgets[i].Spec.MinAvailable, o.Budgets[i].Spec.MaxUnavailable, o.Budgets[i].Spec.Selector))
	}
	return append(append(out, o.hooks()...), o.kubelets()...)
}

func key(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// unmanagedPod returns a pod without a listed workload. Pods of one owner count once: the owner
// is then a custom kind whose template is unknown.
func unmanagedPod(p *corev1.Pod, known map[string]bool) (object lint.Object, ok bool) {
	if _, running := Pod(p); !running {
		return object, false
	}
	_, static := p.Annotations[corev1.MirrorPodAnnotationKey]
	if kind, name := owner(p); kind != model.OwnerNone && !static {
		if known[key(kind, p.Namespace, name)] || isFromCronJob(kind, p.Namespace, name, known) {
			return object, false
		}
		known[key(kind, p.Namespace, name)] = true
		object = lintObject(lint.Object{Replicas: -1}, kind, &p.ObjectMeta, p.Labels, &p.Spec)
		object.Name = name
		if object.Owner == "" || strings.HasPrefix(object.Owner, kind+" ") {
			object.Owner = "the creator of " + kind + " " + p.Namespace + "/" + name
		}
		return object, true
	}
	object = lintObject(lint.Object{Replicas: -1, Static: static}, "Pod", &p.ObjectMeta, p.Labels, &p.Spec)
	object.Static = static
	return object, true
}

// isFromCronJob reports whether a CronJob created a Job: its name is that of the CronJob and a
// number.
func isFromCronJob(kind, namespace, name string, known map[string]bool) bool {
	i := strings.LastIndexByte(name, '-')
	if kind != "Job" || i < 0 || strings.Trim(name[i+1:], "0123456789") != "" {
		return false
	}
	return known[key("CronJob", namespace, name[:i])]
}

// ownerOf returns the owner of an object: its controller, else what labels and annotations
// name.
func ownerOf(meta *metav1.ObjectMeta) string {
	if c := metav1.GetControllerOf(meta); c != nil && c.Kind != "Node" {
		return c.Kind + " " + meta.Namespace + "/" + c.Name
	}
	return lint.OwnerOf(meta.Namespace, meta.Labels, meta.Annotations)
}

// hooks returns the admission webhooks.
func (o *Objects) hooks() []lint.Object {
	var out []lint.Object
	for i := range o.Mutating {
		c := &o.Mutating[i]
		x := lint.Object{Kind: "MutatingWebhookConfiguration", Name: c.Name, Replicas: -1, Owner: ownerOf(&c.ObjectMeta)}
		for _, w := range c.Webhooks {
			x.Hooks = append(x.Hooks, lintHook(w.Name, w.FailurePolicy, w.ClientConfig.Service, w.Rules, true))
		}
		out = append(out, x)
	}
	for i := range o.Validating {
		c := &o.Validating[i]
		x := lint.Object{Kind: "ValidatingWebhookConfiguration", Name: c.Name, Replicas: -1, Owner: ownerOf(&c.ObjectMeta)}
		for _, w := range c.Webhooks {
			x.Hooks = append(x.Hooks, lintHook(w.Name, w.FailurePolicy, w.ClientConfig.Service, w.Rules, false))
		}
		out = append(out, x)
	}
	return out
}

func lintHook(name string, policy *admissionv1.FailurePolicyType, service *admissionv1.ServiceReference, rules []admissionv1.RuleWithOperations, mutating bool) lint.Hook {
	h := lint.Hook{Name: name, Mutating: mutating, FailsClosed: policy == nil || *policy == admissionv1.Fail}
	if service != nil {
		h.Service = service.Namespace + "/" + service.Name
	}
	for _, r := range rules {
		operations := make([]string, len(r.Operations))
		for i, op := range r.Operations {
			operations[i] = string(op)
		}
		h.AsksPods = h.AsksPods || lint.AsksPods(operations, r.APIGroups, r.Resources)
	}
	return h
}

func (o *Objects) kubelets() []lint.Object {
	var out []lint.Object
	for i := range o.Nodes {
		n := &o.Nodes[i]
		k := &lint.Kubelet{Version: n.Status.NodeInfo.KubeletVersion}
		if reported, ok := o.Kubelets[n.Name]; ok {
			k.Verification, k.Allowed = reported.Verification, reported.Allowed
			if age, err := time.ParseDuration(reported.MaxAge); err == nil {
				k.MaxAge = int64(age.Seconds())
			}
		}
		out = append(out, lint.Object{Kind: "Node", Name: n.Name, Replicas: -1, Kubelet: k})
	}
	return out
}

func lintObject(o lint.Object, kind string, meta *metav1.ObjectMeta, labels map[string]string, s *corev1.PodSpec) lint.Object {
	p := model.ImagePod{Namespace: meta.Namespace, OwnerKind: kind, Static: o.Static}
	addSpec(&p, s)
	o.Kind, o.Namespace, o.Name = kind, meta.Namespace, meta.Name
	o.HostNetwork, o.Critical, o.NodeSelector, o.Tolerates, o.Labels = s.HostNetwork, p.Critical, s.NodeSelector, p.Tolerates, labels
	o.Owner = ownerOf(meta)
	o.Off = lint.OffOf(meta.Annotations[lint.OffAnnotation])
	for _, u := range p.Uses {
		if u.Kind != model.UseEphemeral {
			o.Uses = append(o.Uses, lint.Use{ImageUse: u})
		}
	}
	for i := range s.Containers {
		o.Args = append(append(o.Args, s.Containers[i].Command...), s.Containers[i].Args...)
	}
	return o
}

func lintBudget(meta *metav1.ObjectMeta, minimum, maxUnavailable *intstr.IntOrString, selector *metav1.LabelSelector) lint.Object {
	b := &lint.Budget{MinAvailable: -1, AllowsNone: isZero(maxUnavailable) || minimum != nil && minimum.StrVal == "100%"}
	if selector != nil {
		b.Labels = selector.MatchLabels
	}
	if minimum != nil && minimum.Type == intstr.Int {
		b.MinAvailable = minimum.IntValue()
	}
	return lint.Object{Kind: "PodDisruptionBudget", Namespace: meta.Namespace, Name: meta.Name, Replicas: -1, Budget: b}
}
