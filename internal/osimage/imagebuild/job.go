package imagebuild

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobBuild is one build of a Containerfile.
type JobBuild struct {
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
	// Platform that is built, for example linux/arm64; its Job runs on nodes of that
	// architecture. Empty runs anywhere.
	Platform string
	// Proxy variables (HTTP_PROXY, HTTPS_PROXY, NO_PROXY) of the build.
	Proxy map[string]string
	// CABundle is PEM text, Mirrors a registries.conf; a RUN may mount the first as the
	// secret refit-ca. Both may be empty.
	CABundle, Mirrors string
	// Context are the files next to the Containerfile by path, or ContextImage is an image
	// with these files. At most one of the two is set.
	Context      map[string][]byte
	ContextImage string
	// Secrets are mounted into RUN --mount=type=secret as NAME-KEY, and stay out of layers.
	Secrets []string
	// MaxMemory and MaxDisk of the pod; nil is maxMemory and maxDisk.
	MaxMemory, MaxDisk *resource.Quantity
}

// Objects of a build. Context is nil if there are no files next to the Containerfile.
type Objects struct {
	Job            *batchv1.Job
	Files, Context *corev1.ConfigMap
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

// maxMemory and maxDisk end a build before its node runs out of either. The storage
// driver (vfs, the only one that needs no rights) copies every layer.
const maxMemory, maxDisk = "4Gi", "100Gi"

// MakeJob makes the Job and the ConfigMaps that it reads. Same inputs, same objects.
func MakeJob(v Variant, b JobBuild) Objects {
	meta := metav1.ObjectMeta{Name: b.Name, Namespace: b.Namespace, Labels: b.labels()}
	if b.Owner != nil {
		meta.OwnerReferences = []metav1.OwnerReference{*b.Owner}
	}
	out := Objects{Files: &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Containerfile": b.Containerfile, "build.sh": script}}}
	for key, text := range map[string]string{keyCA: b.CABundle, keyMirrors: b.Mirrors} {
		if text != "" {
			out.Files.Data[key] = text
		}
	}
	if len(b.Context) > 0 {
		out.Context = &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), BinaryData: map[string][]byte{}}
		out.Context.Name = b.Name + ContextSuffix
		for i, path := range slices.Sorted(maps.Keys(b.Context)) {
			out.Context.BinaryData[contextKey(i)] = b.Context[path]
		}
	}
	out.Job = &batchv1.Job{ObjectMeta: *meta.DeepCopy(), Spec: batchv1.JobSpec{
		BackoffLimit: ptr(int32(retries)), ActiveDeadlineSeconds: ptr(int64(deadline)), PodFailurePolicy: policy(),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: b.labels()}, Spec: pod(v, b)},
	}}
	return out
}

// Keys of the files in the build's ConfigMap.
const (
	keyCA      = "ca.crt"
	keyMirrors = "registries.conf"
)

// ContextSuffix ends the name of the ConfigMap with the files next to the Containerfile.
const ContextSuffix = "-context"

// contextKey returns the ConfigMap key of a file, whose path may have characters that are
// illegal in keys.
func contextKey(i int) string { return fmt.Sprintf("file-%03d", i) }

func (b JobBuild) labels() map[string]string {
	out := maps.Clone(b.Labels)
	if b.Platform != "" {
		out[LabelPlatform] = Dashed(b.Platform)
	}
	return out
}

// LabelPlatform on the Job and its pod says which platform it builds.
const LabelPlatform = "refit.dev/platform"

// Dashed is a platform as a label and a name may have it: linux-arm64.
func Dashed(platform string) string { return strings.ReplaceAll(platform, "/", "-") }

// selector of the nodes that a platform is built on.
func (b JobBuild) selector() map[string]string {
	parts := strings.Split(b.Platform, "/")
	if len(parts) < 2 {
		return b.NodeSelector
	}
	out := map[string]string{}
	maps.Copy(out, b.NodeSelector)
	out[corev1.LabelOSStable], out[corev1.LabelArchStable] = parts[0], parts[1]
	return out
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

func pod(v Variant, b JobBuild) corev1.PodSpec {
	p := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr(false), EnableServiceLinks: ptr(false), NodeSelector: b.selector(),
		SecurityContext: &corev1.PodSecurityContext{},
		Containers: []corev1.Container{{
			Name: "build", Image: b.Image, Command: []string{"/bin/sh", "/refit/build.sh"}, Env: env(b),
			// The last lines of the log are what people need when it fails; the digest is
			// written to the same place when it does not.
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext:          security(v),
			Resources:                resources(b),
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
	if len(b.Context) > 0 {
		source := configMap(b.Name + ContextSuffix)
		for i, path := range slices.Sorted(maps.Keys(b.Context)) {
			source.ConfigMap.Items = append(source.ConfigMap.Items, corev1.KeyToPath{Key: contextKey(i), Path: path})
		}
		add("context", "/run/refit/context", source)
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

// resources of the container. A request is never above its limit.
func resources(b JobBuild) corev1.ResourceRequirements {
	most := corev1.ResourceList{corev1.ResourceMemory: or(b.MaxMemory, maxMemory), corev1.ResourceEphemeralStorage: or(b.MaxDisk, maxDisk)}
	little := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("512Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("2Gi")}
	for name, limit := range most {
		if request := little[name]; request.Cmp(limit) > 0 {
			little[name] = limit
		}
	}
	return corev1.ResourceRequirements{Requests: little, Limits: most}
}

func or(q *resource.Quantity, usual string) resource.Quantity {
	if q != nil {
		return *q
	}
	return resource.MustParse(usual)
}

// env tells the script everything that is not a file.
func env(b JobBuild) []corev1.EnvVar {
	out := []corev1.EnvVar{{Name: "TARGET", Value: b.Target}, {Name: "SECRETS", Value: strings.Join(b.Secrets, " ")}}
	if b.ContextImage != "" {
		out = append(out, corev1.EnvVar{Name: "CONTEXT_IMAGE", Value: b.ContextImage})
	}
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
