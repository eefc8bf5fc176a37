package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpdaterSpec registers an external updater that implements Cluster API's in-place
// update hooks.
type UpdaterSpec struct {
	// Nodes: it is asked about fields of plain nodes that none of refit's own
	// updaters covers, instead of Cluster API's machines. The machine of the hooks is
	// then an object of kind Node with spec.fields.
	// +optional
	Nodes bool `json:"nodes,omitempty"`
	// URL of the updater, https. The hooks' paths are added to it.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="must begin with https://: what is sent carries secrets"
	URL string `json:"url"`
	// CABundle are the CA certificates, PEM, one of which signed the updater's.
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="must be CA certificates in PEM (they begin with -----BEGIN CERTIFICATE-----)"
	CABundle string `json:"caBundle"`
	// Order among the external updaters: smaller numbers are asked and called
	// first, all of them after refit's own. Equal numbers go by name.
	// +optional
	Order int32 `json:"order,omitempty"`
	// Paths of fields that it is asked about, with all below them, for example
	// infrastructure/spec. Empty means every field that is left.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Paths []string `json:"paths,omitempty"`
	// TimeoutSeconds of one call.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// Settings that are sent with each request.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Settings map[string]string `json:"settings,omitempty"`
}

// Updater registers an external updater. Requests to it contain whole objects, which
// may contain secrets: only administrators may register one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rupd
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['kubernetes', 'new-machines'])",message="this is the name of one of refit's own updaters: take another"
// +kubebuilder:printcolumn:name="Nodes",type=boolean,JSONPath=`.spec.nodes`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Order",type=integer,JSONPath=`.spec.order`
// +kubebuilder:printcolumn:name="Paths",type=string,JSONPath=`.spec.paths`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Updater struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec UpdaterSpec `json:"spec"`
}

// UpdaterList is a list of Updaters.
//
// +kubebuilder:object:root=true
type UpdaterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Updater `json:"items"`
}
