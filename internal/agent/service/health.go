package service

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// maxCertificates is how many certificates the status lists, those that expire first.
const maxCertificates = 12

// nodeHealth observes the health that the gate checks.
type nodeHealth struct {
	paths kube.Paths
	// skew of the clock, from responses of the API server.
	skew func() (time.Duration, bool)
	// ask queries an etcd member.
	ask func(ctx context.Context, base string) etcd.Health
}

// Observe returns the health that it could read; the rest is absent.
func (n *nodeHealth) Observe(ctx context.Context) *v1alpha1.NodeHealth {
	h := &v1alpha1.NodeHealth{PullVerification: kube.PullVerification(n.paths)}
	for _, c := range kube.Certificates(n.paths) {
		if len(h.Certificates) < maxCertificates {
			h.Certificates = append(h.Certificates, v1alpha1.CertificateExpiry{Name: c.Name, NotAfter: metav1.NewTime(c.NotAfter)})
		}
	}
	if ahead, known := n.skew(); known {
		s := int32(ahead / time.Second)
		h.ClockSkewSeconds = &s
	}
	h.Etcd = n.etcd(ctx)
	return h
}

// etcd queries the member that runs as a static pod; nil if there is none, or if it answers
// only with certificates.
func (n *nodeHealth) etcd(ctx context.Context) *v1alpha1.EtcdHealth {
	pods, err := kube.StaticPods(n.paths.Manifests())
	if err != nil {
		return nil
	}
	p := kube.Find(pods, "etcd")
	if p == nil {
		return nil
	}
	base := etcd.MetricsURL(p.Containers[0].Flag("listen-metrics-urls"))
	if base == "" {
		return nil
	}
	m := n.ask(ctx, base)
	return &v1alpha1.EtcdHealth{Healthy: m.Healthy, Message: m.Message, SizeBytes: m.Size, InUseBytes: m.InUse, QuotaBytes: m.Quota}
}
