package workloads

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/model"
)

// Workload is a target as it was read.
type Workload struct {
	track.Target
	// Object of the API server, nil for a static pod.
	Object client.Object
	Pods   []corev1.Pod
	// Named is the digest in its template, "" if there is none.
	Named string

	template *corev1.PodTemplateSpec
	selector labels.Selector
	// wanted is how many pods it should have.
	wanted int
}

// Gather reads the targets, their pods and budgets. live is the API server, not a
// cache.
func Gather(ctx context.Context, live client.Reader, targets []v1alpha1.TrackTarget) ([]*Workload, error) {
	var out []*Workload
	have := map[string]bool{}
	spaces := map[string]clusterfacts.Budgets{}
	for i := range targets {
		found, err := listWorkloads(ctx, live, &targets[i])
		if err != nil {
			return nil, err
		}
		for _, w := range found {
			if have[w.Key()] {
				continue
			}
			have[w.Key()] = true
			if err := w.readPods(ctx, live, spaces); err != nil {
				return nil, err
			}
			out = append(out, w)
		}
	}
	return out, nil
}

// listWorkloads lists the workloads that a target names.
func listWorkloads(ctx context.Context, live client.Reader, target *v1alpha1.TrackTarget) ([]*Workload, error) {
	list := map[string]client.ObjectList{track.Deployment: &appsv1.DeploymentList{}, track.DaemonSet: &appsv1.DaemonSetList{},
		track.StatefulSet: &appsv1.StatefulSetList{}, track.CronJob: &batchv1.CronJobList{}, track.StaticPod: &corev1.PodList{}}[target.Kind]
	selector, err := metav1.LabelSelectorAsSelector(target.Selector)
	if err != nil {
		return nil, fmt.Errorf("the selector of target %s in %s: %w", target.Kind, target.Namespace, err)
	}
	if target.Selector == nil {
		selector = labels.Everything()
	}
	if err := live.List(ctx, list, client.InNamespace(target.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the %ss of namespace %s: %w", target.Kind, target.Namespace, err)
	}
	var out []*Workload
	for _, w := range workloads(list) {
		if target.Name == "" || w.Name == target.Name {
			out = append(out, w)
		}
	}
	return out, nil
}

// workloads of a list.
func workloads(list client.ObjectList) []*Workload {
	var out []*Workload
	add := func(kind string, o client.Object, template *corev1.PodTemplateSpec, selector *metav1.LabelSelector) *Workload {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			s = labels.Nothing()
		}
		w := &Workload{Object: o, template: template, selector: s}
		w.Kind, w.Namespace, w.Name, w.Owner = kind, o.GetNamespace(), o.GetName(), ownerOf(o)
		out = append(out, w)
		return w
	}
	switch l := list.(type) {
	case *appsv1.DeploymentList:
		for i := range l.Items {
			d := &l.Items[i]
			deployment(add(track.Deployment, d, &d.Spec.Template, d.Spec.Selector), d)
		}
	case *appsv1.StatefulSetList:
		for i := range l.Items {
			s := &l.Items[i]
			statefulSet(add(track.StatefulSet, s, &s.Spec.Template, s.Spec.Selector), s)
		}
	case *appsv1.DaemonSetList:
		for i := range l.Items {
			d := &l.Items[i]
			daemonSet(add(track.DaemonSet, d, &d.Spec.Template, d.Spec.Selector), d)
		}
	case *batchv1.CronJobList:
		for i := range l.Items {
			c := &l.Items[i]
			add(track.CronJob, c, &c.Spec.JobTemplate.Spec.Template, nil).Settled = true
		}
	case *corev1.PodList:
		return staticPods(l.Items)
	}
	return out
}

// staticPods by name without that of the node: one workload on many nodes.
func staticPods(pods []corev1.Pod) []*Workload {
	byName := map[string]*Workload{}
	var out []*Workload
	for i := range pods {
		p := &pods[i]
		if p.Annotations[corev1.MirrorPodAnnotationKey] == "" {
			continue
		}
		name := strings.TrimSuffix(p.Name, "-"+p.Spec.NodeName)
		w := byName[name]
		if w == nil {
			w = &Workload{template: &corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}, selector: labels.Nothing()}
			w.Kind, w.Namespace, w.Name, w.Settled = track.StaticPod, p.Namespace, name, true
			w.Kubeadm = model.KubeadmPod(p.Namespace, name) || isFromKubeadm(p.Annotations)
			byName[name] = w
			out = append(out, w)
		}
		w.Pods = append(w.Pods, *p)
	}
	return out
}

// isFromKubeadm reports whether kubeadm has left its mark on a pod.
func isFromKubeadm(annotations map[string]string) bool {
	for k := range annotations {
		if strings.HasPrefix(k, "kubeadm.kubernetes.io/") {
			return true
		}
	}
	return false
}

// readPods reads a workload's pods and the budgets over them.
func (w *Workload) readPods(ctx context.Context, live client.Reader, spaces map[string]clusterfacts.Budgets) error {
	spec := &w.template.Spec
	w.Critical = w.Kind == track.StaticPod || w.Namespace == metav1.NamespaceSystem || spec.HostNetwork || strings.HasPrefix(spec.PriorityClassName, "system-")
	if w.Kind == track.StaticPod || w.Kind == track.CronJob {
		return nil
	}
	var l corev1.PodList
	if err := live.List(ctx, &l, client.InNamespace(w.Namespace), client.MatchingLabelsSelector{Selector: w.selector}); err != nil {
		return fmt.Errorf("list the pods of %s: %w", w.Key(), err)
	}
	w.Pods = l.Items
	w.Down = max(0, w.wanted-readyPods(w.Pods))
	if spaces[w.Namespace] == nil {
		bs, err := clusterfacts.ListBudgets(ctx, live, client.InNamespace(w.Namespace))
		if err != nil {
			return err
		}
		spaces[w.Namespace] = bs
	}
	for _, b := range spaces[w.Namespace].Protecting(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Labels: w.template.Labels}}) {
		w.Budgets = append(w.Budgets, track.Budget{Name: b.Key(), Allowed: int(b.Allowed), Most: int(max(0, b.Expected-b.Wanted))})
	}
	return nil
}

// readyPods counts the pods that are ready and stay.
func readyPods(pods []corev1.Pod) (n int) {
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp == nil && rolloutfacts.PodReady(p) {
			n++
		}
	}
	return n
}

// SetContainers fills in what a workload has of the track's repository.
func (w *Workload) SetContainers(t track.Track, approved *track.Image) {
	w.Containers, w.Old, w.Named = nil, nil, ""
	for _, c := range ContainersOf(&w.template.Spec) {
		if !track.AppliesTo(t, approved, c.Image) {
			continue
		}
		w.Containers = append(w.Containers, c)
		if ref, err := imagetag.ParseRef(c.Image); err == nil && w.Named == "" {
			w.Named = ref.Digest
		}
	}
	if !w.OnDelete || approved == nil {
		return
	}
	for i := range w.Pods {
		p := &w.Pods[i]
		if p.DeletionTimestamp == nil && slices.ContainsFunc(ContainersOf(&p.Spec), func(c track.Container) bool {
			_, changed := track.Rewrite(c.Image, approved)
			return changed && track.AppliesTo(t, approved, c.Image)
		}) {
			w.Old = append(w.Old, p.Name)
		}
	}
	slices.Sort(w.Old)
}

// ContainersOf a pod, the init containers first.
func ContainersOf(spec *corev1.PodSpec) []track.Container {
	var out []track.Container
	for i := range spec.InitContainers {
		out = append(out, track.Container{Name: spec.InitContainers[i].Name, Init: true, Image: spec.InitContainers[i].Image})
	}
	for i := range spec.Containers {
		out = append(out, track.Container{Name: spec.Containers[i].Name, Image: spec.Containers[i].Image})
	}
	return out
}

// Running tells each digest of the track's repository that a pod runs, and where.
func (w *Workload) Running(t track.Track, each func(digest, node string)) {
	for i := range w.Pods {
		p := &w.Pods[i]
		if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, c := range ContainersOf(&p.Spec) {
			if c.Init || !track.AppliesTo(t, nil, c.Image) {
				continue
			}
			for _, st := range p.Status.ContainerStatuses {
				if st.Name == c.Name && st.ImageID != "" {
					each(digestIn(st.ImageID), p.Spec.NodeName)
				}
			}
		}
	}
}

// digestIn an image ID as runtimes report it: repository@sha256:..., with a
// scheme before it, or sha256:... alone.
func digestIn(imageID string) string {
	if i := strings.LastIndexByte(imageID, '@'); i >= 0 {
		return imageID[i+1:]
	}
	if i := strings.Index(imageID, "sha256:"); i >= 0 {
		return imageID[i:]
	}
	return imageID
}

// PodSpecOf a workload's template, to be changed.
func PodSpecOf(o client.Object) *corev1.PodSpec {
	switch x := o.(type) {
	case *appsv1.Deployment:
		return &x.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &x.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &x.Spec.Template.Spec
	case *batchv1.CronJob:
		return &x.Spec.JobTemplate.Spec.Template.Spec
	}
	return &corev1.PodSpec{}
}
