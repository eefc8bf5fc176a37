package distribution

import (
	"slices"
	"strings"
)

// Names of the rows.
const (
	Kubeadm   = "kubeadm"
	K3s       = "k3s"
	RKE2      = "rke2"
	K0s       = "k0s"
	EKSHybrid = "eks-hybrid"
)

// Row is what is known of one distribution.
type Row struct {
	// Name is for programs, Title for people.
	Name, Title string
	// Servers and Agents are the units that start it on control-plane nodes and on workers.
	// Where both are the same, the files of Server tell them apart.
	Servers, Agents []string
	// Supervised is true if one unit starts the container runtime, the kubelet and the rest:
	// then no unit can be ordered between the runtime and the kubelet.
	Supervised bool
	// Marks are paths that exist on nodes of this distribution only. One is enough.
	Marks []string
	// Hints are further paths of it that do not prove it: a program without a node.
	Hints []string
	// Server are paths that exist on its control-plane nodes only.
	Server []string
	// Programs are the usual places of the program that its unit starts; the unit says which.
	Programs []string
	// VersionArgs are the arguments with which that program prints its version.
	VersionArgs []string
	// ReleaseHidden is true if the kubelet reports another version than the release has.
	ReleaseHidden bool
	// DataFlag is the flag and the key of its configuration for the data directory, "" if
	// that cannot be moved.
	DataFlag string
	Places   Places
	// Eviction are the limits that it sets for its kubelet, by signal; nil for the kubelet's own.
	// KubeletDropins is the directory of the drop-ins of the kubelet's configuration, where that
	// is a file.
	Eviction       map[string]string
	KubeletDropins string
	// OwnPods are the static pods that it writes itself, in kube-system.
	OwnPods []string
	// Own are further paths to which only the distribution writes. Editable are directories
	// below its places in which people keep files of their own.
	Own      []Owned
	Editable []string
	// Etcd and SQLite are where a server keeps its datastore, below the data directory.
	Etcd, SQLite string
	// EtcdClient are the credentials of embedded etcd where the distribution has no command
	// that saves a snapshot of it alone.
	EtcdClient EtcdFiles
	// RunningConfig is the configuration that a server wrote down when it started.
	RunningConfig string
	// WorkersOnly is true if servers need not be nodes: those that are none have no agent.
	WorkersOnly bool
	// Updates is true if refit moves its Kubernetes version.
	Updates bool
	// Touches names what an update by refit may change, for people.
	Touches []string
	// Source names where the facts of the row are from.
	Source string
}

// EtcdFiles are paths below the data directory.
type EtcdFiles struct{ CA, Cert, Key string }

// Places are absolute paths on a node, "" for what a distribution does not have.
type Places struct {
	// DataDir holds the state; other places may be below it.
	DataDir string
	// Config is the distribution's own configuration file.
	Config string
	// Socket is that of the container runtime (CRI), RuntimeRoot the runtime's store.
	Socket, RuntimeRoot string
	// Kubeconfig is the kubelet's identity, AdminConfig the administrator's kubeconfig.
	Kubeconfig, AdminConfig string
	// KubeletDir is the kubelet's root directory, KubeletConfig the file or directory of its
	// configuration, from which the eviction limits are.
	KubeletDir, KubeletConfig string
	// Images is the directory from which it imports images when it starts.
	Images string
	// StaticPods is where the kubelet reads static pods.
	StaticPods string
	// PKI has the certificates of the control plane, KubeletPKI those of the kubelet.
	PKI, KubeletPKI string
	// CNI is the directory of network plugins.
	CNI string
}

// Place is one of the places of a row, with a name for people.
type Place struct{ What, Path string }

// Names of the places that the agent asks for.
const (
	WhatData     = "data directory"
	WhatIdentity = "node's identity"
	WhatSocket   = "CRI socket"
	WhatStore    = "runtime's store"
	WhatImages   = "imported images"
	// WhatKubeletConfig is a file or a directory.
	WhatKubeletConfig = "kubelet's configuration"
	WhatKubeletDir    = "kubelet's directory"
	WhatStaticPods    = "static pods"
	WhatPlugins       = "network plugins"
)

// List has the places that a distribution has, in a fixed order.
func (p Places) List() []Place {
	all := []Place{
		{WhatData, p.DataDir}, {"configuration", p.Config}, {WhatSocket, p.Socket}, {WhatStore, p.RuntimeRoot},
		{WhatIdentity, p.Kubeconfig}, {"administrator's kubeconfig", p.AdminConfig}, {WhatKubeletDir, p.KubeletDir},
		{WhatKubeletConfig, p.KubeletConfig}, {WhatImages, p.Images}, {WhatStaticPods, p.StaticPods},
		{"certificates", p.PKI}, {"kubelet's certificates", p.KubeletPKI}, {WhatPlugins, p.CNI},
	}
	out := all[:0]
	for _, x := range all {
		if x.Path != "" {
			out = append(out, x)
		}
	}
	return out
}

// Below returns the places with another data directory: those below the old one move with it.
func (p Places) Below(dataDir string) Places {
	old := p.DataDir
	if dataDir == "" || old == "" || dataDir == old {
		return p
	}
	for _, at := range []*string{&p.DataDir, &p.Config, &p.Socket, &p.RuntimeRoot, &p.Kubeconfig, &p.AdminConfig, &p.KubeletDir, &p.KubeletConfig,
		&p.Images, &p.StaticPods, &p.PKI, &p.KubeletPKI, &p.CNI} {
		if rest, ok := strings.CutPrefix(*at, old); ok && (rest == "" || rest[0] == '/') {
			*at = dataDir + rest
		}
	}
	return p
}

// Writes reports whether a static pod is one that the distribution writes itself. name is without
// that of the node.
func (r Row) Writes(namespace, name string) bool {
	return namespace == "kube-system" && slices.Contains(r.OwnPods, name)
}

// Does says in a sentence what refit does on nodes of the distribution.
func (r Row) Does() string {
	if r.Updates {
		return "refit loads and pins images, checks the gate, updates Kubernetes and OS images"
	}
	return "refit loads and pins images, checks the gate and updates OS images; it does not update the Kubernetes version of " + r.Title
}

// Rows of the table, by value: a caller cannot change it.
func Rows() []Row { return []Row{kubeadm(), k3s(), rke2(), k0s(), eksHybrid()} }

// ByName returns a row.
func ByName(name string) (Row, bool) {
	for _, r := range Rows() {
		if r.Name == name {
			return r, true
		}
	}
	return Row{}, false
}
