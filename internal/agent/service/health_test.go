package service

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
)

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: etcd, namespace: kube-system}
spec:
  containers:
  - name: etcd
    image: registry.k8s.io/etcd:3.6.8-0
    command: [etcd, "--listen-metrics-urls=http://127.0.0.1:2381"]
`

func TestHealthOfANode(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	asked := ""
	n := &nodeHealth{paths: kube.Paths{Root: root}, skew: func() (time.Duration, bool) { return -3 * time.Second, true },
		ask: func(_ context.Context, base string) etcd.Health {
			asked = base
			return etcd.Health{Message: "ALARM NOSPACE", Size: 7, Quota: 8}
		}}
	if h := n.Observe(t.Context()); h.Etcd != nil || asked != "" || h.ClockSkewSeconds == nil || *h.ClockSkewSeconds != -3 {
		t.Errorf("a worker has no member: %+v", h)
	}
	dir := filepath.Join(root, "/etc/kubernetes/manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "etcd.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	h := n.Observe(t.Context())
	if asked != "http://127.0.0.1:2381" || h.Etcd == nil || h.Etcd.Healthy || h.Etcd.Message != "ALARM NOSPACE" || h.Etcd.SizeBytes != 7 || h.Etcd.QuotaBytes != 8 {
		t.Errorf("asked %q: %+v", asked, h.Etcd)
	}
	n.skew = func() (time.Duration, bool) { return 0, false }
	if h := n.Observe(t.Context()); h.ClockSkewSeconds != nil {
		t.Errorf("an unmeasured clock: %d", *h.ClockSkewSeconds)
	}
}
