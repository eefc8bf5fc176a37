package v1alpha1

// Observed is what the agent sees on its node.
type Observed struct {
	// KubeletVersion that the running binary reports.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// KubeadmVersion of the binary in the path.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	KubeadmVersion string `json:"kubeadmVersion,omitempty"`
	// ControlPlane is the version of the API server's static pod, empty on workers.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	ControlPlane string `json:"controlPlane,omitempty"`
	// RuntimeName and RuntimeVersion as CRI reports them.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	RuntimeName string `json:"runtimeName,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	// BootID of the kernel.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	BootID string `json:"bootID,omitempty"`
	// InstalledImage is the OS version of the image that the node was installed from
	// (aleph file, BUILD_ID); empty if unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	InstalledImage string `json:"installedImage,omitempty"`
	// Machine are facts of the machine itself that limit what it can run: cpu
	// (x86-64-v3), shim and grub (versions), loaderBuilt (a date).
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Machine map[string]string `json:"machine,omitempty"`
	// Architecture in Go's words, for example amd64.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Architecture string `json:"architecture,omitempty"`
	// Config is the rendered configuration (spec.config) that the agent compared the node
	// with. Until it is the current one, the differences of the new one are unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]*$`
	Config string `json:"config,omitempty"`
	// Fields are further parts of the node by their path, as updaters name them:
	// the digest of a program or file, the state of a unit, the first day of a
	// certificate. Only what a configuration or a bundle asks for.
	// +optional
	// +kubebuilder:validation:MaxProperties=512
	Fields map[string]string `json:"fields,omitempty"`
}
