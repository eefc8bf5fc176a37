package auditfacts

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/model"
)

// Pod converts a Pod object; ok is false for one that has ended.
func Pod(p *corev1.Pod) (pod model.ImagePod, ok bool) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return pod, false
	}
	pod = model.ImagePod{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName}
	_, pod.Static = p.Annotations[corev1.MirrorPodAnnotationKey]
	pod.OwnerKind, pod.OwnerName = owner(p)
	addSpec(&pod, &p.Spec)
	for i := range pod.Uses {
		addStatus(&pod.Uses[i], &p.Status)
	}
	return pod, true
}

// owner returns what creates the pod's replicas: a Deployment, not its ReplicaSet.
func owner(p *corev1.Pod) (kind, name string) {
	o := metav1.GetControllerOf(p)
	if o == nil {
		return model.OwnerNone, ""
	}
	if o.Kind == "ReplicaSet" {
		if base, ok := strings.CutSuffix(o.Name, "-"+p.Labels["pod-template-hash"]); ok {
			return model.OwnerDeployment, base
		}
	}
	return o.Kind, o.Name
}

// addSpec converts the specification of a pod or of a template.
func addSpec(pod *model.ImagePod, s *corev1.PodSpec) {
	pod.HostNetwork, pod.NodeSelector = s.HostNetwork, s.NodeSelector
	pod.NotRestarted = s.RestartPolicy == corev1.RestartPolicyNever
	pod.Critical = pod.Static || lint.CriticalPod(pod.Namespace, s.PriorityClassName, pod.OwnerKind, s.HostNetwork)
	for _, r := range s.ImagePullSecrets {
		pod.Secrets = append(pod.Secrets, r.Name)
	}
	for _, t := range s.Tolerations {
		pod.Tolerates = append(pod.Tolerates, model.Toleration{Key: t.Key, Value: t.Value, Effect: string(t.Effect), Any: t.Operator == corev1.TolerationOpExists})
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		kind := model.UseInit
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = model.UseSidecar
		}
		pod.Uses = append(pod.Uses, model.ImageUse{Container: c.Name, Kind: kind, Image: c.Image, Policy: model.PullPolicy(c.ImagePullPolicy)})
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		pod.Uses = append(pod.Uses, model.ImageUse{Container: c.Name, Kind: model.UseContainer, Image: c.Image, Policy: model.PullPolicy(c.ImagePullPolicy)})
	}
	for i := range s.EphemeralContainers {
		c := &s.EphemeralContainers[i]
		pod.Uses = append(pod.Uses, model.ImageUse{Container: c.Name, Kind: model.UseEphemeral, Image: c.Image, Policy: model.PullPolicy(c.ImagePullPolicy)})
	}
	for i := range s.Volumes {
		if v := s.Volumes[i].Image; v != nil {
			pod.Uses = append(pod.Uses, model.ImageUse{Container: s.Volumes[i].Name, Kind: model.UseVolume, Image: v.Reference, Policy: model.PullPolicy(v.PullPolicy)})
		}
	}
}

// addStatus adds the image that runs for a use, or ran last.
func addStatus(u *model.ImageUse, s *corev1.PodStatus) {
	lists := map[string][]corev1.ContainerStatus{model.UseInit: s.InitContainerStatuses, model.UseSidecar: s.InitContainerStatuses,
		model.UseContainer: s.ContainerStatuses, model.UseEphemeral: s.EphemeralContainerStatuses}
	list := lists[u.Kind]
	for i := range list {
		c := &list[i]
		if c.Name != u.Container {
			continue
		}
		u.Runs, u.RunsAs = c.ImageID, c.Image
		switch {
		case c.State.Running != nil:
			u.Since = c.State.Running.StartedAt.Unix()
		case c.State.Terminated != nil:
			u.Since = c.State.Terminated.StartedAt.Unix()
		case c.State.Waiting != nil:
			u.Waits = c.State.Waiting.Reason
			if t := c.LastTerminationState.Terminated; t != nil {
				u.Since = t.StartedAt.Unix()
			}
		}
		return
	}
}
