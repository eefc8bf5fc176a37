package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodesNamespace holds the NodeUpdate and Content objects.
const NodesNamespace = "refit-nodes"

// SystemNamespace holds the controller.
const SystemNamespace = "refit-system"

// BuildsNamespace holds the Jobs that build OS images or fetch images with the
// credentials of a track, and the Secrets that they and the controller may use.
const BuildsNamespace = "refit-builds"

// GroupVersion is refit.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "refit.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this group with a scheme. A variable of it, as is usual,
// would link all kinds into every program that uses one.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Bundle{}, &BundleList{},
		&TrustPolicy{}, &TrustPolicyList{},
		&PinnedImageSet{}, &PinnedImageSetList{},
		&UpdatePool{}, &UpdatePoolList{},
		&ClusterUpdate{}, &ClusterUpdateList{},
		&NodeUpdate{}, &NodeUpdateList{},
		&Content{}, &ContentList{},
		&NodeConfig{}, &NodeConfigList{},
		&OSImage{}, &OSImageList{},
		&OSBuild{}, &OSBuildList{},
		&InPlacePlan{}, &InPlacePlanList{},
		&Updater{}, &UpdaterList{},
		&ImageTrack{}, &ImageTrackList{},
		&BootImageStream{}, &BootImageStreamList{},
		&BootImagePolicy{}, &BootImagePolicyList{},
		&MachineSource{}, &MachineSourceList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
