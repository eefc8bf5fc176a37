package buildjob

import (
	_ "embed"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Build is one build of a Containerfile.
type Build struct {
	// Name of the OSBuild; Job and ConfigMap have it too. Namespace they are in.
	Name, Namespace string
	Labels          map[string]string
	Owner           *metav1.OwnerReference
	// Image with buildah, by digest.
	Image string
	// Containerfile as Render makes it; Target is repository:tag to push to.
	Containerfile, Target string
	// PullSecret and PushSecret of type kubernetes.io/dockerconfigjson, empty for none.
	PullSecret, PushSecret string
	NodeSelector           map[string]string
	// Insecure registries are spoken to without TLS, for registries on the loopback.
	Insecure bool
	// Proxy variables (HTTP_PROXY, HTTPS_PROXY, NO_PROXY) of the build; CABundle is a
	// ConfigMap with ca.crt, Mirrors one with registries.conf, Context one whose keys
	// are files beside the Containerfile; Secrets are mounted into RUN --mount=type=secret
	// by name, and land in no layer. All may be empty.
	Proxy                      map[string]string
	CABundle, Mirrors, Context string
	Secrets                    []string
}

// Exit codes of the script.
const (
	// ExitUser is for what the build was asked to do and cannot.
	ExitUser = 64
	// ExitNamespaces: the pod may not make what buildah needs.
	ExitNamespaces = 65
)

//go:embed build.sh
var script string

// retries of a Job whose surroundings fail: four tries in all.
const retries = 3

// deadline of a build in seconds.
const deadline = 3600

// Make makes the Job and the ConfigMap that it reads. Same inputs, same objects.
func Make(v Variant, b Build) (*batchv1.Job, *corev1.ConfigMap) {
	meta := metav1.ObjectMeta{Name: b.Name, Namespace: b.Namespace, Labels: b.Labels}
	if b.Owner != nil {
		meta.OwnerReferences = []metav1.OwnerReference{*b.Owner}
	}
	files := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Containerfile": b.Containerfile, "build.sh": script}}
	job := &batchv1.Job{ObjectMeta: *meta.DeepCopy(), Spec: batchv1.JobSpec{
		BackoffLimit: ptr(int32(retries)), ActiveDeadlineSeconds: ptr(int64(deadline)), PodFailurePolicy: policy(),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: b.Labels}, Spec: pod(v, b)},
	}}
	return job, files
}

// policy: a fault of the user ends the Job, a drain of its node does not count.
func policy() *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: ptr("build"), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{ExitUser, ExitNamespaces}}},
		{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}},
	}}
}

func pod(v Variant, b Build) corev1.PodSpec {
	p := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr(false), EnableServiceLinks: ptr(false), NodeSelector: b.NodeSelector,
		SecurityContext: &corev1.PodSecurityContext{},
		Containers: []corev1.Container{{
			Name: "build", Image: b.Image, Command: []string{"/bin/sh", "/refit/build.sh"}, Env: env(b),
			// The last lines of the log are what people need when it fails; the digest is
			// written to the same place when it does not.
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext:          security(v),
			Resources:                corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("512Mi")}},
		}},
	}
	switch v {
	case UserNamespace, UserNamespaceUnconfined:
		p.HostUsers = ptr(false)
	case FileCapabilities:
		p.SecurityContext.FSGroup = ptr(int64(1000))
	case Root, RootAdmin:
	}
	c := &p.Containers[0]
	add := func(name, at string, source corev1.VolumeSource) {
		p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: source.EmptyDir == nil})
	}
	add("build", "/build", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	add("refit", "/refit", configMap(b.Name))
	for name, secret := range map[string]string{"pull": b.PullSecret, "push": b.PushSecret} {
		if secret == "" {
			continue
		}
		add(name, "/run/refit/"+name, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, Items: []corev1.KeyToPath{{Key: corev1.DockerConfigJsonKey, Path: "auth.json"}}}})
	}
	for _, m := range [][2]string{{"ca", b.CABundle}, {"mirrors", b.Mirrors}, {"context", b.Context}} {
		if m[1] != "" {
			add(m[0], "/run/refit/"+m[0], configMap(m[1]))
		}
	}
	for _, s := range b.Secrets {
		add("secret-"+s, "/run/refit/secrets/"+s, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s}})
	}
	sortVolumes(&p)
	return p
}

func configMap(name string) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

// env tells the script everything that is not a file.
func env(b Build) []corev1.EnvVar {
	out := []corev1.EnvVar{{Name: "TARGET", Value: b.Target}, {Name: "SECRETS", Value: strings.Join(b.Secrets, " ")}}
	if b.Insecure {
		out = append(out, corev1.EnvVar{Name: "TLS_VERIFY", Value: "false"})
	}
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v := b.Proxy[k]; v != "" {
			out = append(out, corev1.EnvVar{Name: k, Value: v}, corev1.EnvVar{Name: strings.ToLower(k), Value: v})
		}
	}
	return out
}

func security(v Variant) *corev1.SecurityContext {
	s := &corev1.SecurityContext{Privileged: ptr(false)}
	switch v {
	case UserNamespace, RootAdmin:
		s.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	case FileCapabilities:
		s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = ptr(int64(1000)), ptr(int64(1000)), ptr(true)
	case UserNamespaceUnconfined, Root:
	}
	return s
}

func ptr[T any](v T) *T { return &v }
