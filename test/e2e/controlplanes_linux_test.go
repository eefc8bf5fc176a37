package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/refit-dev/refit/internal/lab/scenario"
)

// balancer is what kubeadm's documentation proposes for HAProxy in front of API servers
// (kubeadm, docs/ha-considerations.md), as far as it is about TCP. It asks /readyz each
// second instead of /healthz: an API server that ends, or starts, is not ready. HAProxy sends
// a refused connection to another server.
const balancer = `defaults
  mode tcp
  option redispatch
  retries 1
  timeout queue 20s
  timeout connect 5s
  timeout client 35s
  timeout server 35s
  timeout check 10s
frontend api
  bind 127.0.0.1:7443
  default_backend servers
backend servers
  balance roundrobin
  option httpchk
  http-check connect ssl
  http-check send meth GET uri /readyz
  http-check expect status 200
  default-server inter 1s fall 2 rise 2
`

// TestControlPlanesBehindABalancer updates three control-plane nodes while a client asks
// the API through HAProxy, each time on a new connection. No request fails.
func TestControlPlanesBehindABalancer(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a whole update of five nodes takes long: make e2e")
	}
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("needs haproxy: make deps installs it")
	}
	s := start(t, "planes", 5, func(o *scenario.Options) { o.ControlPlanes, o.MediumNode = 3, "n4" })
	const node = "n4"
	config := balancer
	for _, n := range s.Lab.Nodes()[:3] {
		config += fmt.Sprintf("  server %s %s check verify none\n", n, net.JoinHostPort(s.Lab.Address(n), "6443"))
	}
	must(t, s.Lab.WriteFile(t.Context(), node, "/root/haproxy.cfg", []byte(config), 0o600))
	must(t, s.Exec(t.Context(), node, "systemd-run", "--unit", "lab-haproxy", "haproxy", "-W", "-db", "-f", "/root/haproxy.cfg"))

	b, err := s.MakeBundle(t.Context(), scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	dev, err := s.Insert(t.Context(), s.MediumNode, b)
	must(t, err)
	must(t, s.Install(t.Context(), b, dev))
	must(t, s.Approve(t.Context(), b))
	digest, err := s.Prepare(t.Context(), b)
	must(t, err)
	asks, err := askThrough(t.Context(), s, node, "127.0.0.1:7443")
	must(t, err)
	startUpdate(t, s)
	finished(t, s, b, digest)
	total, failed := asks()
	if total < 100 || len(failed) > 0 {
		t.Errorf("of %d requests %d failed: %q", total, len(failed), failed[:min(len(failed), 10)])
	}
	keepResult(t, "controlplanes.json", func() any {
		return map[string]any{"controlPlanes": 3, "workers": 2, "requests": total, "failedRequests": len(failed)}
	})
}

// askThrough asks for an object again and again until the result is fetched: how often, and
// the failures.
func askThrough(ctx context.Context, s *scenario.Scenario, node, address string) (func() (int, []string), error) {
	conf, err := s.Lab.RESTConfig()
	if err != nil {
		return nil, err
	}
	conf = rest.CopyConfig(conf)
	security, err := rest.TLSConfigFor(conf)
	if err != nil {
		return nil, err
	}
	security.ServerName = "kubernetes"
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: security, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.Lab.Dial(ctx, node, "tcp", address)
		}}}
	ctx, cancel := context.WithCancel(ctx)
	total, failed := 0, []string(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			err := ask(ctx, client)
			if ctx.Err() != nil {
				return
			}
			if total++; err != nil {
				failed = append(failed, time.Now().UTC().Format("15:04:05.000")+" "+err.Error())
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	return func() (int, []string) {
		cancel()
		wg.Wait()
		return total, failed
	}, nil
}

func ask(ctx context.Context, client *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://kubernetes/api/v1/namespaces/kube-system", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %.100s", answer.Status, text)
	}
	return nil
}
