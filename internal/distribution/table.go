package distribution

// KubeadmPlaces are the places on nodes that kubeadm made, on which refit was built first.
func KubeadmPlaces() Places { return kubeadm().Places }

// KubeletUnit is the kubelet's unit where the kubelet has one of its own.
const KubeletUnit = "kubelet.service"

// KubeadmDropins is where refit puts a drop-in of the kubelet's configuration on kubeadm nodes.
const KubeadmDropins = "/etc/kubernetes/kubelet.conf.d"

// Sockets of the container runtimes that have a unit of their own.
const (
	ContainerdSocket = "/run/containerd/containerd.sock"
	CRIOSocket       = "/run/crio/crio.sock"
)

// kubeadm: kubernetes/kubernetes cmd/kubeadm/app/constants/constants.go (KubernetesDir, file
// names, KubeletRunDirectory, KubeletEnvFileName), kubernetes/release kubeadm's packages (unit).
// OpenShift has a file /etc/kubernetes/kubelet.conf too, so that is no mark.
func kubeadm() Row {
	return Row{
		Name: Kubeadm, Title: "kubeadm",
		Servers: []string{KubeletUnit}, Agents: []string{KubeletUnit},
		Marks:       []string{"/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/instance-config.yaml"},
		Hints:       []string{"/etc/kubernetes/kubelet.conf", "/usr/bin/kubeadm", "/usr/local/bin/kubeadm"},
		Server:      []string{"/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/admin.conf"},
		Programs:    []string{"/usr/bin/kubelet", "/usr/local/bin/kubelet"},
		VersionArgs: []string{"--version"},
		Places: Places{
			Config: "/var/lib/kubelet/kubeadm-flags.env",
			Socket: ContainerdSocket, RuntimeRoot: "/var/lib/containerd",
			Kubeconfig: "/etc/kubernetes/kubelet.conf", AdminConfig: "/etc/kubernetes/admin.conf",
			KubeletDir: "/var/lib/kubelet", KubeletConfig: "/var/lib/kubelet/config.yaml",
			StaticPods: "/etc/kubernetes/manifests", PKI: "/etc/kubernetes/pki", KubeletPKI: "/var/lib/kubelet/pki", CNI: "/opt/cni/bin",
		},
		KubeletDropins: KubeadmDropins,
		OwnPods:        []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"},
		Own: []Owned{{"/etc/kubernetes", "kubeadm's: certificates, kubeconfigs and static pods are changed by their own updaters"},
			{"/var/lib/etcd", "etcd's data"}},
		Updates: true,
		Touches: []string{"kubelet, kubeadm and kubectl", "container runtime", "network plugins", "static pods", "certificates", "files and units of NodeConfigs", "OS image"},
		Source:  "kubernetes/kubernetes cmd/kubeadm/app/constants",
	}
}

// whileSupervised is what an update may change where a supervisor has the rest.
func whileSupervised() []string {
	return []string{"images in the container runtime", "files and units of NodeConfigs", "OS image"}
}

// whileUpdated is the same where refit replaces the supervisor too.
func whileUpdated() []string { return append([]string{"the one program"}, whileSupervised()...) }

// rancherEviction are the limits that k3s, and RKE2 with it, sets.
func rancherEviction() map[string]string {
	return map[string]string{"imagefs.available": "5%", "nodefs.available": "5%"}
}

// k3s: k3s-io/k3s install.sh (units, program), pkg/agent/config/config.go (identity, images,
// static pods, containerd, the node's password), config_linux.go (socket), pkg/daemons/agent/agent_linux.go
// (kubelet). The kubelet's directory is /var/lib/kubelet unless rootless. Since v1.32 it has
// drop-ins in agent/etc/kubelet.conf.d; before, the limits of eviction were arguments. People add
// their own add-ons (pkg/deploy) and their own template of containerd's configuration.
func k3s() Row {
	const data = "/var/lib/rancher/k3s"
	return Row{
		Name: K3s, Title: "k3s", Supervised: true,
		Servers: []string{"k3s.service"}, Agents: []string{"k3s-agent.service"},
		Marks:       []string{data + "/agent/kubelet.kubeconfig", data + "/server/token"},
		Hints:       []string{data, "/usr/local/bin/k3s", "/opt/bin/k3s", "/etc/rancher/k3s"},
		Server:      []string{data + "/server/tls"},
		Programs:    []string{"/usr/local/bin/k3s", "/opt/bin/k3s"},
		VersionArgs: []string{"--version"},
		DataFlag:    "data-dir",
		Places: Places{
			DataDir: data, Config: "/etc/rancher/k3s/config.yaml",
			Socket: "/run/k3s/containerd/containerd.sock", RuntimeRoot: data + "/agent/containerd",
			Kubeconfig: data + "/agent/kubelet.kubeconfig", AdminConfig: "/etc/rancher/k3s/k3s.yaml",
			KubeletDir: "/var/lib/kubelet", KubeletConfig: data + "/agent/etc/kubelet.conf.d",
			Images: data + "/agent/images", StaticPods: data + "/agent/pod-manifests",
			PKI: data + "/server/tls", KubeletPKI: data + "/agent",
		},
		Eviction: rancherEviction(),
		Own:      nodePassword(), Editable: []string{data + "/server/manifests", data + "/agent/etc/containerd"},
		Etcd: "server/db/etcd", SQLite: "server/db/state.db",
		Updates: true,
		Touches: whileUpdated(),
		Source:  "k3s-io/k3s install.sh, pkg/agent/config, pkg/daemons/agent",
	}
}

// rke2: rancher/rke2 bundle/lib/systemd/system (units, program; packages of rpm have /usr/bin),
// bundle/bin/rke2-uninstall.sh (roots of an installation), pkg/podexecutor (static pods). It has
// k3s's agent: the places below agent and the socket are those of k3s.
func rke2() Row {
	const data = "/var/lib/rancher/rke2"
	return Row{
		Name: RKE2, Title: "RKE2", Supervised: true,
		Servers: []string{"rke2-server.service"}, Agents: []string{"rke2-agent.service"},
		Marks:       []string{data + "/agent/kubelet.kubeconfig", data + "/server/token"},
		Hints:       []string{data, "/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/bin/rke2", "/etc/rancher/rke2"},
		Server:      []string{data + "/server/tls"},
		Programs:    []string{"/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/bin/rke2"},
		VersionArgs: []string{"--version"},
		DataFlag:    "data-dir",
		Places: Places{
			DataDir: data, Config: "/etc/rancher/rke2/config.yaml",
			Socket: "/run/k3s/containerd/containerd.sock", RuntimeRoot: data + "/agent/containerd",
			Kubeconfig: data + "/agent/kubelet.kubeconfig", AdminConfig: "/etc/rancher/rke2/rke2.yaml",
			KubeletDir: "/var/lib/kubelet", KubeletConfig: data + "/agent/etc/kubelet.conf.d",
			Images: data + "/agent/images", StaticPods: data + "/agent/pod-manifests",
			PKI: data + "/server/tls", KubeletPKI: data + "/agent", CNI: "/opt/cni/bin",
		},
		Eviction: rancherEviction(),
		OwnPods:  []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "cloud-controller-manager"},
		Own:      nodePassword(), Editable: []string{data + "/server/manifests", data + "/agent/etc/containerd"},
		Etcd: "server/db/etcd", SQLite: "server/db/state.db",
		Updates: true,
		Touches: whileUpdated(),
		Source:  "rancher/rke2 bundle, pkg/podexecutor; k3s-io/k3s pkg/agent/config",
	}
}

// k0s: k0sproject/k0s pkg/config/cfgvars.go (data, identity, images, certificates, run
// directory), pkg/component/worker/kubelet.go (kubelet's directory and configuration; static
// pods come over loopback, not from a directory), pkg/component/worker/containerd (store,
// socket), pkg/install (units), pkg/etcd and pkg/backup (datastore). Its kubelet reports
// v1.36.3+k0s for release v1.36.3+k0s.2. A controller is a node only with --enable-worker or
// --single. `k0s backup` packs images too, and fails without /etc/k0s/k0s.yaml.
func k0s() Row {
	const data = "/var/lib/k0s"
	return Row{
		Name: K0s, Title: "k0s", Supervised: true, ReleaseHidden: true,
		Servers: []string{"k0scontroller.service"}, Agents: []string{"k0sworker.service"},
		Marks:       []string{data + "/kubelet.conf", data + "/pki/ca.key"},
		Hints:       []string{data, "/usr/local/bin/k0s", "/usr/bin/k0s", "/etc/k0s"},
		Server:      []string{data + "/pki/admin.conf"},
		Programs:    []string{"/usr/local/bin/k0s", "/usr/bin/k0s"},
		VersionArgs: []string{"version"},
		DataFlag:    "data-dir",
		Places: Places{
			DataDir: data, Config: "/etc/k0s/k0s.yaml",
			Socket: "/run/k0s/containerd.sock", RuntimeRoot: data + "/containerd",
			Kubeconfig: data + "/kubelet.conf", AdminConfig: data + "/pki/admin.conf",
			KubeletDir: data + "/kubelet", KubeletConfig: "/run/k0s/kubelet/config.yaml",
			Images: data + "/images", PKI: data + "/pki", KubeletPKI: data + "/kubelet/pki", CNI: "/opt/cni/bin",
		},
		Editable: []string{data + "/manifests"},
		Etcd:     "etcd", SQLite: "db/state.db", RunningConfig: "/run/k0s/k0s.yaml", WorkersOnly: true,
		EtcdClient: EtcdFiles{CA: "pki/etcd/ca.crt", Cert: "pki/apiserver-etcd-client.crt", Key: "pki/apiserver-etcd-client.key"},
		Updates:    true,
		Touches:    whileUpdated(),
		Source:     "k0sproject/k0s pkg/config/cfgvars.go, pkg/component/worker, pkg/install, pkg/etcd",
	}
}

// eksHybrid: aws/eks-hybrid internal/kubelet (program, unit, identity, configuration),
// internal/tracker (what nodeadm installed), doc on files of nodeadm install and init. The
// control plane is AWS's, so a node is always a worker.
func eksHybrid() Row {
	return Row{
		Name: EKSHybrid, Title: "EKS Hybrid Nodes",
		Agents:      []string{KubeletUnit},
		Marks:       []string{"/opt/nodeadm/tracker", "/etc/eks/kubelet/environment"},
		Hints:       []string{"/usr/local/bin/nodeadm", "/etc/eks", "/var/lib/kubelet/kubeconfig"},
		Programs:    []string{"/usr/bin/kubelet"},
		VersionArgs: []string{"--version"},
		Places: Places{
			Config: "/etc/eks/kubelet/environment",
			Socket: ContainerdSocket, RuntimeRoot: "/var/lib/containerd",
			Kubeconfig: "/var/lib/kubelet/kubeconfig",
			KubeletDir: "/var/lib/kubelet", KubeletConfig: "/etc/kubernetes/kubelet/config.json",
			KubeletPKI: "/var/lib/kubelet/pki", CNI: "/opt/cni/bin",
		},
		KubeletDropins: "/etc/kubernetes/kubelet/config.json.d",
		Touches:        whileSupervised(),
		Source:         "aws/eks-hybrid internal/kubelet, internal/tracker",
	}
}
