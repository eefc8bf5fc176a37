package service

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// maxCertificates are reported, those that end first.
const maxCertificates = 12

// nodeHealth looks at what the gate asks of a node.
type nodeHealth struct {
	paths kube.Paths
	// skew of the clock, as answers of the API server show it.
	skew func() (time.Duration, bool)
	// ask asks an etcd member.
	ask func(ctx context.Context, base string) etcd.Health
}

// Look says what it could learn; what it could not is absent.
func (n *nodeHealth) Look(ctx context.Context) *v1alpha1.NodeHealth {
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

// etcd asks the member that runs as a static pod; nil if there is none, or none
// that answers without certificates.
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
