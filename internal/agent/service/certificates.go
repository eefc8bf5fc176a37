package service

import (
	"context"

	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// stopSeconds is how long a static pod's container may take to end by itself.
const stopSeconds = 30

// CertificateFiles looks at one of the node's certificates.
func (h *nodeHost) Certificate(name string) (c kube.CertificateFiles, found bool, err error) {
	return kube.CertificateDir{Root: h.paths.Root}.Read(name)
}

// CertificateFiles are where a certificate and its key are.
func (h *nodeHost) CertificateFiles(name string) []string {
	return kube.CertificateDir{Root: h.paths.Root}.Files(name)
}

// EtcdUnsafe says why this node's member of etcd must not be restarted now.
func (h *nodeHost) EtcdUnsafe(ctx context.Context) ([]string, error) {
	e, err := h.Etcd(ctx)
	if err != nil || e == nil {
		return nil, err
	}
	return e.Unsafe(ctx)
}

// StopContainer ends a container, which the kubelet starts again.
func (h *nodeHost) StopContainer(ctx context.Context, id string) error {
	return h.cri.Stop(ctx, id, stopSeconds)
}
