package auditfacts

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// Objects are the objects of a cluster that the caller has read.
type Objects struct {
	Nodes       []corev1.Node
	Pods        []corev1.Pod
	NodeUpdates []v1alpha1.NodeUpdate
	Contents    []v1alpha1.Content
	Deployments []appsv1.Deployment
	DaemonSets  []appsv1.DaemonSet
	StatefulSet []appsv1.StatefulSet
	CronJobs    []batchv1.CronJob
	Tracks      []v1alpha1.ImageTrack
	Budgets     []policyv1.PodDisruptionBudget
	Mutating    []admissionv1.MutatingWebhookConfiguration
	Validating  []admissionv1.ValidatingWebhookConfiguration
	// Kubelets are the kubelets' own configurations by node, where readable.
	Kubelets map[string]Kubelet
	// Published are registry answers to the caller, by repository:tag; they override
	// those of tracks.
	Published map[string]model.Published
	// GoneDigests are registry answers to the caller by repository@digest: true is a
	// deleted one, false an existing one.
	GoneDigests map[string]bool
}

// Kubelet is a part of a kubelet's configuration (its /configz).
type Kubelet struct {
	Verification string   `json:"imagePullCredentialsVerificationPolicy"`
	Allowed      []string `json:"preloadedImagesVerificationAllowlist"`
	MaxImages    *int     `json:"nodeStatusMaxImages"`
	MaxAge       string   `json:"imageMaximumGCAge"`
}
