package clusterfacts

import (
	"context"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// maxAlways is how many pods with pull policy Always are named.
const maxAlways = 5

// Survey is the result of listing all pods once.
type Survey struct {
	// Pods are those that hinder the drain of their node, with their budgets.
	Pods  []drain.Pod
	Pulls gate.Pulls
}

// SurveyPods lists all pods once and returns those that hinder a drain, and the pods that need
// a registry at every start. Each visitor gets every pod.
func SurveyPods(ctx context.Context, c client.Reader, drained map[string]bool, r Rules, visitors ...func(*corev1.Pod)) (Survey, error) {
	var s Survey
	bs, err := ListBudgets(ctx, c)
	if err != nil {
		return s, err
	}
	var always []string
	err = eachPod(ctx, c, func(p *corev1.Pod) {
		if drained[p.Spec.NodeName] {
			d := r.drainPod(p, bs.Protecting(p))
			d.Nowhere = len(d.Budgets) > 0 && r.fitsNowhere(p)
			if drain.Hinders(d, r.Options()) {
				s.Pods = append(s.Pods, d)
			}
		}
		for _, see := range visitors {
			see(p)
		}
		if pullsAlways(p) {
			always = append(always, p.Namespace+"/"+p.Name)
		}
		if forcesPull(p) {
			s.Pulls.AlwaysAdmission = append(s.Pulls.AlwaysAdmission, p.Name)
		}
	})
	if err != nil {
		return s, err
	}
	sort.Strings(always)
	sort.Strings(s.Pulls.AlwaysAdmission)
	s.Pulls.AlwaysPods, s.Pulls.Always = len(always), always[:min(len(always), maxAlways)]
	return s, nil
}

func pullsAlways(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, cs := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range cs {
			if cs[i].ImagePullPolicy == corev1.PullAlways {
				return true
			}
		}
	}
	return false
}

// forcesPull reports whether a pod is an API server with AlwaysPullImages.
func forcesPull(p *corev1.Pod) bool {
	if p.Namespace != metav1.NamespaceSystem || p.Labels["component"] != "kube-apiserver" {
		return false
	}
	for i := range p.Spec.Containers {
		for _, a := range append(append([]string{}, p.Spec.Containers[i].Command...), p.Spec.Containers[i].Args...) {
			list, ok := strings.CutPrefix(a, "--enable-admission-plugins=")
			for _, name := range strings.Split(list, ",") {
				if ok && strings.TrimSpace(name) == "AlwaysPullImages" {
					return true
				}
			}
		}
	}
	return false
}
