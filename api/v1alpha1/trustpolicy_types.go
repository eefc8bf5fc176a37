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

// PEMText is a key or a certificate with a name.
type PEMText struct {
	// Name for messages.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// PEM text.
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:XValidation:rule="self.startsWith('-----BEGIN PUBLIC KEY-----') || self.startsWith('-----BEGIN CERTIFICATE-----')",message="must be PEM that begins with -----BEGIN PUBLIC KEY----- (cosign.pub) or -----BEGIN CERTIFICATE-----; a private key must never be put here"
	PEM string `json:"pem"`
}

// CosignTrust is the keys of cosign that may sign images.
type CosignTrust struct {
	// Keys of which one must have signed.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.pem.startsWith('-----BEGIN PUBLIC KEY-----'))",message="keys of cosign are public keys: PEM that begins with -----BEGIN PUBLIC KEY-----"
	Keys []PEMText `json:"keys"`
}

// NotationTrust is the certificates of notation that may sign images.
type NotationTrust struct {
	// Roots that issue the certificates.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.pem.startsWith('-----BEGIN CERTIFICATE-----'))",message="roots of notation are certificates: PEM that begins with -----BEGIN CERTIFICATE-----"
	Roots []PEMText `json:"roots"`
	// Identities are subjects of certificates, for example "x509.subject: C=DE, O=Vendor", or
	// "*" for every certificate of the roots.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^(\*|x509\.subject:.+)$`
	Identities []string `json:"identities"`
}

// ImageRule says who must have signed the images of some repositories. It has the form of a
// rule in the policy of refit bundle create --verify, with PEM text instead of files.
//
// +kubebuilder:validation:XValidation:rule="has(self.accept) != (has(self.cosign) || has(self.notation))",message="name cosign keys or notation roots, or write accept: Unsigned, and not both"
type ImageRule struct {
	// Images is a repository with its registry, a repository followed by /* for everything
	// below it, or *. The most specific rule of a policy counts.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(\*|(localhost|[A-Za-z0-9-]*[.:][A-Za-z0-9.:-]*)(/[a-z0-9._-]+)*(/\*)?)$`
	Images string `json:"images"`
	// Accept is Unsigned for an exception from a wider rule of this policy.
	// +optional
	// +kubebuilder:validation:Enum=Unsigned
	Accept string `json:"accept,omitempty"`
	// Signed is what must be signed: Image (its digest; the default) or EachPlatform (the
	// manifest of every platform in the bundle).
	// +optional
	// +kubebuilder:validation:Enum=Image;EachPlatform
	Signed string `json:"signed,omitempty"`
	// SignedAs are patterns of further repositories that a signature may name, for copies.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^(\*|(localhost|[A-Za-z0-9-]*[.:][A-Za-z0-9.:-]*)(/[a-z0-9._-]+)*(/\*)?)$`
	SignedAs []string `json:"signedAs,omitempty"`
	// +optional
	Cosign *CosignTrust `json:"cosign,omitempty"`
	// +optional
	Notation *NotationTrust `json:"notation,omitempty"`
}

// TrustPolicySpec is whose bundles may be loaded, and whose images.
//
// +kubebuilder:validation:XValidation:rule="!has(self.threshold) || !has(self.keys) || self.threshold <= size(self.keys)",message="threshold is larger than the number of keys, so no bundle could ever satisfy it: lower it or add keys"
// +kubebuilder:validation:XValidation:rule="has(self.keys) || has(self.images)",message="name keys that sign bundles, or images that must be signed"
type TrustPolicySpec struct {
	// Keys that are trusted. A bundle signed by enough of them may be loaded; to run it,
	// set its digest in a ClusterUpdate.
	// +listType=map
	// +listMapKey=name
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Keys []TrustedKey `json:"keys,omitempty"`
	// Images are rules about the signatures of images. Each node verifies them, by the
	// signatures that a bundle carries, before it loads or pins an image that it has not
	// pinned before. Every policy with a rule for a repository must be met. Images of
	// repositories without a rule need no signature.
	// +optional
	// +listType=map
	// +listMapKey=images
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Images []ImageRule `json:"images,omitempty"`
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

// TrustPolicy names the keys whose bundles may be loaded, and who must have signed images.
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
