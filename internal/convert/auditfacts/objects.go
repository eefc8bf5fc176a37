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

// Objects of a cluster, as far as somebody has read them.
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
	// Kubelets are the kubelets' own configurations by node, where they could be
	// asked.
	Kubelets map[string]Kubelet
	// Published is what registries answered to somebody else, by repository:tag;
	// it counts before what tracks say.
	Published map[string]model.Published
	// GoneDigests are repository@digest that registries said to somebody else not to
	// have; false is one that they have.
	GoneDigests map[string]bool
}

// Kubelet is what a kubelet says of itself (its /configz).
type Kubelet struct {
	Verification string   `json:"imagePullCredentialsVerificationPolicy"`
	Allowed      []string `json:"preloadedImagesVerificationAllowlist"`
	MaxImages    *int     `json:"nodeStatusMaxImages"`
	MaxAge       string   `json:"imageMaximumGCAge"`
}
