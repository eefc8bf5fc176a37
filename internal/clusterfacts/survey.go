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

// Survey is what one walk over all pods found.
type Survey struct {
	// Pods that a drain of their node could not get past, with their budgets.
	Pods  []drain.Pod
	Pulls gate.Pulls
}

// Pods walks over all pods once: those of the nodes that will be drained, and
// what asks a registry at every start. Others may see each pod as it comes by.
func Pods(ctx context.Context, c client.Reader, drained map[string]bool, r Rules, also ...func(*corev1.Pod)) (Survey, error) {
	var s Survey
	bs, err := ListBudgets(ctx, c)
	if err != nil {
		return s, err
	}
	var always []string
	err = eachPod(ctx, c, func(p *corev1.Pod) {
		if drained[p.Spec.NodeName] {
			d := r.pod(p, bs.Of(p))
			d.Nowhere = len(d.Budgets) > 0 && r.nowhere(p)
			if drain.Hinders(d, r.Options()) {
				s.Pods = append(s.Pods, d)
			}
		}
		for _, see := range also {
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
