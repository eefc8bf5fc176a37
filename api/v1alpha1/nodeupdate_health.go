package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CertificateExpiry is the last moment of one certificate.
type CertificateExpiry struct {
	// Name of the file below the directory it was found in, for example
	// apiserver.crt or etcd/server.crt.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Name     string      `json:"name"`
	NotAfter metav1.Time `json:"notAfter"`
}

// EtcdHealth is the health that this node's etcd member reports.
type EtcdHealth struct {
	Healthy bool `json:"healthy"`
	// Message is why it is not healthy.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Message string `json:"message,omitempty"`
	// SizeBytes of the database file, InUseBytes of it with data, and QuotaBytes at
	// which etcd refuses writes; 0 if unknown.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// +optional
	InUseBytes int64 `json:"inUseBytes,omitempty"`
	// +optional
	QuotaBytes int64 `json:"quotaBytes,omitempty"`
}

// NodeHealth has the facts of a node for the gate. The agent observes them and changes
// nothing.
type NodeHealth struct {
	// Certificates of this node's Kubernetes parts; those that end first, at
	// most 12.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=12
	Certificates []CertificateExpiry `json:"certificates,omitempty"`
	// Etcd on a node with an etcd member.
	// +optional
	Etcd *EtcdHealth `json:"etcd,omitempty"`
	// ClockSkewSeconds is how far this node's clock is ahead of the API
	// server's (negative: behind), measured to a second; absent if unknown.
	// +optional
	ClockSkewSeconds *int32 `json:"clockSkewSeconds,omitempty"`
	// PullVerification is the kubelet's imagePullCredentialsVerificationPolicy
	// if it is set: AlwaysVerify asks a registry also for images that are here.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	PullVerification string `json:"pullVerification,omitempty"`
}
