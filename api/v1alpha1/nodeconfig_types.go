package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConfigDisruption is what a change does to its node, mildest first.
// +kubebuilder:validation:Enum=none;reload;restart;drain;reboot
type ConfigDisruption string

// ConfigMapKey names one key of a ConfigMap.
type ConfigMapKey struct {
	// Name of a ConfigMap in the namespace refit-nodes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in its data or binaryData.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// PayloadFile names a file of a bundle, and pins it.
type PayloadFile struct {
	// Name of the payload, starting with file. (payload:file.motd=motd.txt of refit
	// bundle create): nodes store those of every approved bundle.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^file[.][a-z0-9._-]+$')",message="must be the name of a payload that begins with file., for example file.motd: nodes hold only those"
	Name string `json:"name"`
	// Digest of the file, as refit bundle inspect shows it.
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 lower-case hex digits, as refit bundle inspect shows it"
	Digest string `json:"digest"`
}

// FileContents is the source of a file's bytes. It cannot be a Secret: every node
// can read the rendered file.
//
// +kubebuilder:validation:XValidation:rule="(has(self.inline) ? 1 : 0) + (has(self.base64) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + (has(self.payload) ? 1 : 0) == 1",message="set exactly one of inline, base64, configMap and payload"
type FileContents struct {
	// Inline text.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Inline *string `json:"inline,omitempty"`
	// Base64 of bytes that are no text.
	// +optional
	// +kubebuilder:validation:MaxLength=524288
	Base64 []byte `json:"base64,omitempty"`
	// ConfigMap key; a change of it is a change of the configuration.
	// +optional
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
	// Payload is a file in an approved bundle, which the nodes store.
	// +optional
	Payload *PayloadFile `json:"payload,omitempty"`
}

// NodeFile is one file of the matching nodes.
//
// +kubebuilder:validation:XValidation:rule="(has(self.absent) && self.absent) != has(self.contents)",message="set contents, or absent: true to have the file removed"
type NodeFile struct {
	// Path on the node, absolute. Paths of any Kubernetes distribution, etcd, the kubelet, the
	// container runtime and refit itself are refused. Configuration that people write is not, for
	// example /etc/rancher/k3s/config.yaml.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.endsWith('/') && !self.contains('//') && !self.contains('/../') && !self.contains('/./') && !self.endsWith('/..')",message="must be an absolute, clean path of a file"
	Path string `json:"path"`
	// Mode are the permission bits; 0644 as kubectl reads it in YAML, 420 in JSON.
	// Default 0644.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4095
	Mode *int32 `json:"mode,omitempty"`
	// Owner and Group, names or numbers; default root.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Owner string `json:"owner,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Group string `json:"group,omitempty"`
	// Contents of the file.
	// +optional
	Contents *FileContents `json:"contents,omitempty"`
	// Absent has the file removed. Taking a file out of a NodeConfig leaves it
	// on the nodes.
	// +optional
	Absent bool `json:"absent,omitempty"`
	// Disruption of a change. Default: reload for what is read by a service that
	// refit knows (sysctl.d, modules-load.d, tmpfiles.d, sysusers.d), restart with
	// units, else none.
	// +optional
	Disruption ConfigDisruption `json:"disruption,omitempty"`
	// Units that read the file: reloaded or restarted after a change if they run.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Units []string `json:"units,omitempty"`
}

// UnitDropin is one drop-in of a unit.
type UnitDropin struct {
	// Name of the drop-in file, ending in .conf.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*[.]conf$')",message="must be a file name that ends in .conf"
	Name string `json:"name"`
	// Contents of the drop-in.
	// +kubebuilder:validation:MaxLength=65536
	Contents string `json:"contents"`
}

// NodeUnit is one systemd unit of the matching nodes.
//
// +kubebuilder:validation:XValidation:rule="has(self.state) || has(self.contents) || has(self.dropins)",message="set state, contents or dropins"
// +kubebuilder:validation:XValidation:rule="!(has(self.contents) && has(self.state) && self.state == 'masked')",message="a unit with contents cannot be masked: its file stands where the mask goes"
type NodeUnit struct {
	// Name with its type, for example edge-probe.service.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.@:-]+[.](service|timer|socket|mount|path|target|automount|swap|slice)$')",message="must be the name of a unit with its type, for example edge-probe.service"
	Name string `json:"name"`
	// State: enabled (starts at boot and runs), disabled (neither), masked (cannot
	// be started). Empty leaves it as it is.
	// +optional
	// +kubebuilder:validation:Enum=enabled;disabled;masked
	State string `json:"state,omitempty"`
	// Contents of the unit file in /etc/systemd/system.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Contents string `json:"contents,omitempty"`
	// Dropins in the unit's .d directory.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Dropins []UnitDropin `json:"dropins,omitempty"`
	// Disruption of a change; default restart.
	// +optional
	Disruption ConfigDisruption `json:"disruption,omitempty"`
}

// NodeCertificate is how recent a certificate of the node must be.
//
// +kubebuilder:validation:XValidation:rule="has(self.notBefore) || has(self.daysLeft)",message="set notBefore or daysLeft"
type NodeCertificate struct {
	// Name of the certificate in kubeadm, kubelet-client, or all for every one that
	// kubeadm renews. Nodes without it skip it.
	// +kubebuilder:validation:Enum=all;admin.conf;super-admin.conf;controller-manager.conf;scheduler.conf;apiserver;apiserver-etcd-client;apiserver-kubelet-client;etcd-healthcheck-client;etcd-peer;etcd-server;front-proxy-client;kubelet-client
	Name string `json:"name"`
	// NotBefore is the first day on which it may have been made, for example
	// 2026-11-20. Raise it to have it renewed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^20[0-9]{2}-[01][0-9]-[0-3][0-9]$')",message="must be a day, for example 2026-11-20"
	// +kubebuilder:validation:MaxLength=10
	NotBefore string `json:"notBefore,omitempty"`
	// DaysLeft it must still be good for.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=364
	DaysLeft int32 `json:"daysLeft,omitempty"`
}

// NodeField is a part of a node that none of refit's own updaters changes, such as
// a firmware: an external updater does. The agent observes it in a file.
type NodeField struct {
	// Path names it, for example firmware/bios.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z][a-z0-9-]*(/[A-Za-z0-9_.-]+)+$') && !self.matches('^(kubernetes|program|cni|runtime|kubelet|file|unit|certificate)/')",message="must be a path such as firmware/bios, and none that refit's own updaters know (kubernetes/, program/, cni/, runtime/, kubelet/, file/, unit/, certificate/)"
	Path string `json:"path"`
	// Value that is wanted.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._:+-]*$')",message="must be a version or a word: letters, digits and . _ : + -"
	Value string `json:"value"`
	// File on the node with the plain value, for example /sys/class/dmi/id/bios_version;
	// blanks around it do not count.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.endsWith('/') && !self.contains('//') && !self.contains('/../') && !self.contains('/./') && !self.endsWith('/..')",message="must be an absolute, clean path of a file"
	File string `json:"file"`
}

// KernelArgument is one word of a kernel's command line.
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.,:;=@%/+*#&|!?~^<>(){}$-]*$')",message="must be one word without blanks and quotes, for example console=ttyS0"
type KernelArgument string

// UserKeys are the ssh keys of one user. refit writes the whole file
// authorized_keys in the user's home; keys that are not named here are gone then.
type UserKeys struct {
	// User of the node.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z_][a-z0-9_-]*$')",message="must be the name of a user: lower-case letters, digits, dash and underscore"
	User string `json:"user"`
	// Keys as ssh-keygen writes the public ones.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	Keys []string `json:"keys"`
}

// PackageName is a package of the distribution.
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9+._-]*$')",message="must be the name of a package, for example chrony"
type PackageName string

// NodeConfigSpec is what the matching nodes' own configuration is to be. It
// moves no node: the next ClusterUpdate does, and one without a bundle does nothing
// else.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.pools) && has(self.nodeSelector))",message="set pools or nodeSelector, not both"
type NodeConfigSpec struct {
	// Pools whose nodes it is for. Neither pools nor nodeSelector means every node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Pools []string `json:"pools,omitempty"`
	// NodeSelector picks the nodes by label.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Files, each path once. Two NodeConfigs that match one node must not name the
	// same path.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=128
	Files []NodeFile `json:"files,omitempty"`
	// Units of systemd.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Units []NodeUnit `json:"units,omitempty"`
	// Kubelet has fields of a KubeletConfiguration that override the node's own, as a
	// drop-in. NodeConfigs that match one node are merged; the same field in two is
	// refused.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Kubelet *runtime.RawExtension `json:"kubelet,omitempty"`
	// Certificates of the node that are renewed in place.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Certificates []NodeCertificate `json:"certificates,omitempty"`
	// SandboxImage of the container runtime, for example registry.k8s.io/pause:3.10.2.
	// The node must have pinned it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	SandboxImage string `json:"sandboxImage,omitempty"`
	// Fields that external updaters change (kind Updater with nodes: true).
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=32
	Fields []NodeField `json:"fields,omitempty"`
	// KernelArguments of the nodes, in order. The same argument in two NodeConfigs
	// is one; two values of it are refused, but for those that may be there more
	// often, such as console.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	KernelArguments []KernelArgument `json:"kernelArguments,omitempty"`
	// SSHAuthorizedKeys of users; keys of one user in several NodeConfigs are put
	// together.
	// +optional
	// +listType=map
	// +listMapKey=user
	// +kubebuilder:validation:MaxItems=16
	SSHAuthorizedKeys []UserKeys `json:"sshAuthorizedKeys,omitempty"`
	// Packages that the pool's OS image is to have. Nothing installs them on nodes
	// that run, so they are for pools with an OSImage.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Packages []PackageName `json:"packages,omitempty"`
}

// NodeConfigStatus is how many nodes the NodeConfig applies to, and why not to
// others.
type NodeConfigStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes that match, and Current ones that are as it wants.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// +optional
	Current int32 `json:"current,omitempty"`
	// Conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeConfig is configuration of nodes: files, units, kubelet, certificates.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refit,shortName=rnc
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.current`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type NodeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeConfigSpec `json:"spec"`
	// +optional
	Status NodeConfigStatus `json:"status,omitempty"`
}

// NodeConfigList is a list of NodeConfigs.
//
// +kubebuilder:object:root=true
type NodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeConfig `json:"items"`
}
