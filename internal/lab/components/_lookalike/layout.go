package main

import "fmt"

// layout is where a face keeps what, as the real one.
type layout struct {
	data, config, admin string
	// tls has the certificates of a server, cred the kubeconfigs of its controllers.
	tls, cred, kubeadm, etcd, manifests string
	// work is the directory below which kine has its file.
	work string
	// socket and state are those of containerd, containerd its root.
	socket, state, containerd, containerdConfig, registries string
	kubeconfig, proxyKubeconfig, clientCA                   string
	kubeletConfig, proxyConfig                              string
	// staticPods is "" where the kubelet reads none from a directory.
	staticPods, images string
	kubeletFlags       []string
}

func layoutOf(face, base string) layout {
	if face == "k0s" {
		return k0sLayout(base)
	}
	data := base
	if data == "" {
		data = "/var/lib/rancher/" + face
	}
	server, agent := data+"/server", data+"/agent"
	l := layout{data: data, config: "/etc/rancher/" + face + "/config.yaml", admin: fmt.Sprintf("/etc/rancher/%s/%[1]s.yaml", face),
		tls: server + "/tls", cred: server + "/cred", kubeadm: server + "/kubeadm.yaml", etcd: server + "/db/etcd", manifests: server + "/manifests", work: server,
		socket: "/run/k3s/containerd/containerd.sock", state: "/run/k3s/containerd", containerd: agent + "/containerd",
		containerdConfig: agent + "/etc/containerd/config.toml", registries: agent + "/etc/containerd/certs.d",
		kubeconfig: agent + "/kubelet.kubeconfig", proxyKubeconfig: agent + "/kubeproxy.kubeconfig", clientCA: agent + "/client-ca.crt",
		kubeletConfig: agent + "/etc/kubelet.conf.d/00-defaults.conf", proxyConfig: agent + "/etc/kube-proxy.yaml",
		staticPods: agent + "/pod-manifests", images: agent + "/images"}
	l.kubeletFlags = []string{"--config-dir=" + agent + "/etc/kubelet.conf.d"}
	return l
}

// k0sLayout: k0s has no directory of static pods, and writes the kubelet's configuration below
// /run when it starts.
func k0sLayout(base string) layout {
	data := base
	if data == "" {
		data = "/var/lib/k0s"
	}
	l := layout{data: data, config: "/etc/k0s/k0s.yaml", admin: data + "/pki/admin.conf",
		tls: data + "/pki", cred: data + "/cred", kubeadm: data + "/kubeadm.yaml", etcd: data + "/etcd", manifests: data + "/manifests", work: data,
		socket: "/run/k0s/containerd.sock", state: "/run/k0s/containerd", containerd: data + "/containerd",
		containerdConfig: "/etc/k0s/containerd.toml", registries: "/etc/k0s/certs.d",
		kubeconfig: data + "/kubelet.conf", proxyKubeconfig: data + "/kube-proxy.conf", clientCA: "/run/k0s/kubelet/ca.crt",
		kubeletConfig: "/run/k0s/kubelet/config.yaml", proxyConfig: data + "/kube-proxy.yaml", images: data + "/images"}
	l.kubeletFlags = []string{"--config=" + l.kubeletConfig, "--root-dir=" + data + "/kubelet", "--cert-dir=" + data + "/kubelet/pki"}
	return l
}
