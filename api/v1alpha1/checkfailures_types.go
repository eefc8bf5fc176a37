package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CheckFailures are checks that failed one after the other, the last one included.
// Conditions name the failure from the first one on. They change when it persists: at the
// third one, or at the second one if it is ten minutes after the first.
type CheckFailures struct {
	// Count of them; it stops when the failure persists.
	Count int32 `json:"count"`
	// Since is the time of the first one.
	Since metav1.Time `json:"since"`
	// Last is the time of the last one that was counted.
	Last metav1.Time `json:"last"`
	// Message of the last one.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}
