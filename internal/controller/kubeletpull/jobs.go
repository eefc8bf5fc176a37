package kubeletpull

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

const (
	// maxNodes is how many nodes of one track fetch side by side.
	maxNodes = 5
	// jobDeadlineSeconds bounds one fetch. jobTTLSeconds is how long a finished Job stays:
	// then it is created again, if the image is still missing.
	jobDeadlineSeconds, jobTTLSeconds = 30 * 60, 120
	// noProgram is a program that no image has.
	noProgram = "/refit-fetches-and-runs-nothing"
	// unprivilegedUser is a user without rights.
	unprivilegedUser = 65534
)

// Credentials is where the credentials are.
type Credentials struct {
	Namespace string
	// Secrets by name, as a pod's imagePullSecrets.
	Secrets []corev1.LocalObjectReference
}

// CredentialsFor the credentials for a track: those of the first pod that has some, else
// the track's own; ok is false if there are none.
func CredentialsFor(o *v1alpha1.ImageTrack, pods []corev1.Pod) (p Credentials, ok bool) {
	for i := range pods {
		if s := pods[i].Spec.ImagePullSecrets; len(s) > 0 {
			return Credentials{pods[i].Namespace, s}, true
		}
	}
	if s := o.Spec.PullSecret; s != nil {
		return Credentials{v1alpha1.BuildsNamespace, []corev1.LocalObjectReference{{Name: s.Name}}}, true
	}
	return Credentials{}, false
}

// Image to be fetched.
type Image struct {
	// Name with tag and digest.
	Name string
	// Size of its layers as they are fetched, in bytes; 0 if that is not known.
	Size int64
}

// Jobs has nodes fetch images.
type Jobs struct {
	Client client.Client
	Live   client.Reader
	// WriterRole that gives the right to make Jobs.
	WriterRole string
}

// Requester is for whom images are fetched: an ImageTrack, an OSImage. The Jobs go with it.
type Requester struct {
	Kind, Name string
	UID        types.UID
	// Manager is the field owner of the Jobs, Labels what they are found by.
	Manager string
	Labels  map[string]string
}

// ForTrack is for an ImageTrack.
func ForTrack(o *v1alpha1.ImageTrack) Requester {
	return Requester{Kind: "ImageTrack", Name: o.Name, UID: o.UID, Manager: v1alpha1.FieldOwnerTracks,
		Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerTracks, v1alpha1.LabelTrack: o.Name}}
}

// Pull has nodes without the images fetch them; nodes are their NodeUpdates in order. why is
// what stops a fetch, "" if nothing.
func (j *Jobs) Pull(ctx context.Context, o Requester, p Credentials, images []Image, nodes []*v1alpha1.NodeUpdate) (why string, err error) {
	for i, nu := range nodes {
		if i == maxNodes {
			break
		}
		for _, image := range images {
			said, err := j.pullOne(ctx, o, p, image, nu)
			if err != nil {
				return "", err
			}
			if why == "" {
				why = said
			}
		}
	}
	return why, nil
}

func (j *Jobs) pullOne(ctx context.Context, o Requester, p Credentials, image Image, nu *v1alpha1.NodeUpdate) (why string, err error) {
	name := jobName(o, image, nu.Name)
	var pods corev1.PodList
	if err := j.Live.List(ctx, &pods, client.InNamespace(p.Namespace), client.MatchingLabels{batchv1.JobNameLabel: name}); err != nil {
		return "", fmt.Errorf("list the pods of Job %s/%s: %w", p.Namespace, name, err)
	}
	if len(pods.Items) > 0 {
		return pullFailure(&pods.Items[0], nu.Name), nil
	}
	if why := spaceProblem(nu, image); why != "" {
		return why, nil
	}
	err = j.Client.Create(ctx, job(o, p, image, nu.Name, name), client.FieldOwner(o.Manager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return "", nil
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the image needs credentials, and refit may not use those of namespace %s: kubectl -n %s create rolebinding %s --clusterrole=%s --serviceaccount=%s:%s. If the binding exists, a quota or a policy refuses Job %s",
			p.Namespace, p.Namespace, j.WriterRole, j.WriterRole, v1alpha1.SystemNamespace, v1alpha1.FieldOwnerController, name), nil
	case err != nil:
		return "", fmt.Errorf("make Job %s/%s: %w", p.Namespace, name, err)
	}
	return "", nil
}

// pullFailure is what stops a pod that fetches. The kubelet's own words are for who may
// read that pod.
func pullFailure(p *corev1.Pod, node string) string {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && strings.Contains(w.Reason, "Image") {
			return fmt.Sprintf("node %s: its kubelet cannot fetch the image (%s): kubectl -n %s describe pod %s", node, w.Reason, p.Namespace, p.Name)
		}
	}
	return ""
}

// spaceProblem returns why an image does not fit on a node, "" if it does or is unknown.
func spaceProblem(nu *v1alpha1.NodeUpdate, image Image) string {
	var rooms []pin.Room
	for _, f := range nu.Status.FileSystems {
		rooms = append(rooms, pin.Room{Name: f.Name, ID: f.ID, Free: f.FreeBytes, Total: f.TotalBytes})
	}
	for _, v := range pin.CheckSpace(nu.Name, map[string]int64{pin.ImagesFS: pin.SpaceToFetch(image.Size)}, rooms) {
		return v.Message
	}
	return ""
}

// jobName tells image, node and for whom it is apart.
func jobName(o Requester, image Image, node string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", o.UID, image.Name, node))
	return fmt.Sprintf("refit-fetch-%x", sum[:8])
}

func job(o Requester, p Credentials, image Image, node, name string) *batchv1.Job {
	no, yes, user, once, until, ttl := false, true, int64(unprivilegedUser), int32(0), int64(jobDeadlineSeconds), int32(jobTTLSeconds)
	little := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("4Mi")}
	most := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	labels := o.Labels
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: o.Kind, Name: o.Name, UID: o.UID}}},
		Spec: batchv1.JobSpec{BackoffLimit: &once, ActiveDeadlineSeconds: &until, TTLSecondsAfterFinished: &ttl,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeName: node, ImagePullSecrets: p.Secrets, RestartPolicy: corev1.RestartPolicyNever, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: new(int64),
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{Name: "fetch", Image: image.Name, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{noProgram},
					Resources: corev1.ResourceRequirements{Requests: little, Limits: most},
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
						Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
			}}},
	}
}
