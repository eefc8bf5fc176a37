package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrustedKey is a public key that may sign bundles.
type TrustedKey struct {
	// Name of the key, for people.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// PublicKey in PEM, as `refit keys generate` writes it to refit.pub.
	// +kubebuilder:validation:XValidation:rule="self.startsWith('-----BEGIN PUBLIC KEY-----')",message="must be the PEM text of refit.pub (it begins with -----BEGIN PUBLIC KEY-----); a private key must never be put here"
	// +kubebuilder:validation:MaxLength=1024
	PublicKey string `json:"publicKey"`
}

// Requirement is what a bundle needs to be loaded.
// +kubebuilder:validation:Enum=Digest;Signatures
type Requirement string

const (
	// RequireDigest loads a bundle whose digest a Bundle object approves, or that
	// enough keys signed.
	RequireDigest Requirement = "Digest"
	// RequireSignatures loads only bundles that enough keys signed.
	RequireSignatures Requirement = "Signatures"
)

// TrustPolicySpec is whose bundles may be loaded.
//
// +kubebuilder:validation:XValidation:rule="!has(self.threshold) || self.threshold <= size(self.keys)",message="threshold is larger than the number of keys, so no bundle could ever satisfy it: lower it or add keys"
type TrustPolicySpec struct {
	// Keys that are trusted. A bundle signed by enough of them may be loaded; to run it,
	// set its digest in a ClusterUpdate.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Keys []TrustedKey `json:"keys"`
	// Threshold is how many of the keys must have signed. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Threshold int32 `json:"threshold,omitempty"`
	// Require is what a bundle needs to be loaded: Digest (an approved digest is
	// enough, so are the signatures of enough keys) or Signatures (an approved digest
	// alone is not enough). One policy with Signatures counts for all bundles; each
	// bundle needs the signatures that any one TrustPolicy asks for.
	// +optional
	// +kubebuilder:default=Digest
	Require Requirement `json:"require,omitempty"`
	// RevokedDigests are bundles that must never be loaded again, however signed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=71
	// +kubebuilder:validation:items:Pattern=`^sha256:[0-9a-f]{64}$`
	RevokedDigests []string `json:"revokedDigests,omitempty"`
}

// TrustPolicyStatus is whether the policy is in force.
type TrustPolicyStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TrustPolicy names the keys whose bundles may be loaded.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rtp
// +kubebuilder:printcolumn:name="Threshold",type=integer,JSONPath=`.spec.threshold`
// +kubebuilder:printcolumn:name="Require",type=string,JSONPath=`.spec.require`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TrustPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TrustPolicySpec `json:"spec"`
	// +optional
	Status TrustPolicyStatus `json:"status,omitempty"`
}

// TrustPolicyList is a list of TrustPolicies.
//
// +kubebuilder:object:root=true
type TrustPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TrustPolicy `json:"items"`
}
