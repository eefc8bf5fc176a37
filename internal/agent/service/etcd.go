package service

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters/kubeadm"
)

// Etcd returns the member that runs as a static pod of this node, nil if there is none.
func (h *nodeHost) Etcd(context.Context) (kubeadm.Etcd, error) {
	pods, err := h.StaticPods()
	if err != nil {
		return nil, err
	}
	p := kube.Find(pods, "etcd")
	if p == nil {
		return nil, nil
	}
	c := p.Containers[0]
	return etcd.Member{URL: clientURL(c.Flag("listen-client-urls")), Credentials: etcd.Credentials{
		CA: h.paths.Etcd("ca.crt"), Cert: h.paths.Etcd("healthcheck-client.crt"), Key: h.paths.Etcd("healthcheck-client.key")}}, nil
}

// clientURL returns a loopback address of the member's API, else its first address.
func clientURL(flag string) string {
	all := strings.Split(flag, ",")
	i := slices.IndexFunc(all, func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Hostname() == "127.0.0.1" || u.Hostname() == "localhost" || u.Hostname() == "::1")
	})
	if all[max(i, 0)] == "" {
		return "https://127.0.0.1:2379"
	}
	return all[max(i, 0)]
}

// TempDir returns the directory in which kubeadm keeps copies of replaced files.
func (h *nodeHost) TempDir() string { return h.paths.KubeadmTemp() }
