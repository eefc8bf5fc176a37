package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of Content.
const (
	// ContentPins is a pin list: what a node must have and pin.
	ContentPins = "pins"
	// ContentTrust is a model.Trust: trusted keys and revoked digests.
	ContentTrust = "trust"
	// ContentPlan is a model.Plan.
	ContentPlan = "plan"
	// ContentConfig is a model.NodeConfig: a node's rendered configuration.
	ContentConfig = "config"
	// ContentOSConfig is a model.NodeConfig: the inputs of a pool's OS image.
	ContentOSConfig = "osconfig"
	// ContentOSImage is a model.ImageOverlay: the parts of an assembled OS image in addition
	// to its base.
	ContentOSImage = "osimage"
	// ContentPackages is text: the packages of an OS image, lines of name and version.
	ContentPackages = "packages"
	// ContentOSLive is JSON: the files in which an OS image differs from the one that a
	// pool's nodes keep, and that agents write.
	ContentOSLive = "oslive"
	// ContentOSFacts is JSON: what an OS image has, as refit read it from its layers.
	ContentOSFacts = "osfacts"
	// ContentStream is the data of a BootImageStream that was fetched.
	ContentStream = "stream"
)

// ContentName returns the name of the Content of a type with this data: the
// type, a dash, and the first 40 hex digits of the data's SHA-256. Who reads a
// Content checks the data against its name.
func ContentName(kind, data string) string {
	sum := sha256.Sum256([]byte(data))
	return kind + "-" + hex.EncodeToString(sum[:])[:40]
}

// Content is an immutable value named by its hash: image lists, trusted keys,
// plans. Data for many nodes is stored once.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=rco
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.type`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Type of the data: hold, trust, plan, config, osconfig, osimage, packages, oslive,
	// osfacts or stream.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Content is named by its hash and cannot be changed: create another"
	Type string `json:"type"`
	// Data as JSON text; packages are lines.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Content is named by its hash and cannot be changed: create another"
	// +kubebuilder:validation:MaxLength=1000000
	Data string `json:"data"`
}

// ContentList is a list of Contents.
//
// +kubebuilder:object:root=true
type ContentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Content `json:"items"`
}
