package service

import (
	"context"

	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// stopSeconds is the grace period of a static pod's container.
const stopSeconds = 30

// Certificate reads one of the node's certificates.
func (h *nodeHost) Certificate(name string) (c kube.CertificateFiles, found bool, err error) {
	return kube.CertificateDir{Root: h.paths.Root}.ReadFiles(name)
}

// CertificateFiles returns the paths of a certificate and its key.
func (h *nodeHost) CertificateFiles(name string) []string {
	return kube.CertificateDir{Root: h.paths.Root}.Files(name)
}

// EtcdUnsafe returns why this node's etcd member must not be restarted now.
func (h *nodeHost) EtcdUnsafe(ctx context.Context) ([]string, error) {
	e, err := h.Etcd(ctx)
	if err != nil || e == nil {
		return nil, err
	}
	return e.Unsafe(ctx)
}

// StopContainer stops a container; the kubelet starts it again.
func (h *nodeHost) StopContainer(ctx context.Context, id string) error {
	return h.cri.Stop(ctx, id, stopSeconds)
}
