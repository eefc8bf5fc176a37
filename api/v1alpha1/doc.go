// Package v1alpha1 holds refit's kinds: group refit.dev, version v1alpha1.
//
// Promise: the words of the product. Every kind, reason and condition that a
// person can read in `kubectl get` is defined here and nowhere else. The
// package imports only apimachinery.
//
// Writers: people write the specs of Bundle (approval), TrustPolicy, PinnedImageSet,
// UpdatePool, NodeConfig, ImageTrack and ClusterUpdate. The controller writes Content,
// the specs of NodeUpdate and every status but that of NodeUpdate. Each node's agent
// writes the status of the NodeUpdate with the name of its node.
//
// Size: one version of the API is one package; a kind is one file.
//
// +kubebuilder:object:generate=true
// +groupName=refit.dev
package v1alpha1
