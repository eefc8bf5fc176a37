package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
)

// wellness observes what a node must have to be well after steps that can cut it off.
type wellness struct {
	host    *nodeHost
	kubelet func(ctx context.Context) error
	// peers is how many peers answer.
	peers func(ctx context.Context) int
	// failed are the watched units that have failed.
	failed func(ctx context.Context) string
}

// watchedUnits show a failure of network, firewall, resolver or sshd.
var watchedUnits = []string{"NetworkManager.service", "systemd-networkd.service", "networking.service", "wicked.service",
	"systemd-resolved.service", "nftables.service", "iptables.service", "firewalld.service", "ufw.service", "ssh.service", "sshd.service"}

func wellnessOf(h *nodeHost, peers func(ctx context.Context) int) wellness {
	return wellness{host: h, kubelet: kube.KubeletHealthy, peers: peers, failed: h.failedUnits}
}

// Observe asks the kubelet, the API server and the peers.
func (w wellness) Observe(ctx context.Context) engine.Health {
	out := engine.Health{Peers: w.peers(ctx), Failed: w.failed(ctx)}
	if err := w.kubelet(ctx); err != nil {
		out.Kubelet = err.Error()
	}
	n, err := w.host.nodeStatus(ctx)
	if err == nil {
		err = w.dialServer(ctx)
	}
	if err != nil {
		out.API = err.Error()
		return out
	}
	boot, err := w.host.BootID()
	switch {
	case err == nil && n.Boot != "" && n.Boot != boot:
		out.NotReady = "the kubelet has not reported this boot to the API server yet"
	case !n.ready:
		out.NotReady = strings.TrimSuffix("the node is not Ready: "+n.why, ": ")
	}
	out.Heartbeat = w.heartbeat(ctx)
	return out
}

// failedUnits are the watched units that have failed, with blanks in between. A systemd that does
// not answer reports none.
func (h *nodeHost) failedUnits(ctx context.Context) string {
	var out []string
	_ = h.unit(ctx, func(m *systemd.Manager) error {
		for _, u := range watchedUnits {
			if state, err := m.Active(ctx, u); err == nil && state == "failed" {
				out = append(out, u)
			}
		}
		return nil
	})
	return strings.Join(out, " ")
}

// dialServer opens a connection to the API server that the kubelet uses: a firewall may pass
// those that are open already.
func (w wellness) dialServer(ctx context.Context) error {
	server, err := kube.Server(w.host.kubeconfig)
	if err != nil {
		return err
	}
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("kubelet's kubeconfig: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	c, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return fmt.Errorf("no new connection to the API server: %w", err)
	}
	return c.Close()
}

// dialTime is how long a connection to the API server may take.
const dialTime = 5 * time.Second

// heartbeat is when the kubelet renewed the node's Lease last, "" if the node has none.
func (w wellness) heartbeat(ctx context.Context) string {
	b, err := w.host.getFromAPI(ctx, true, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+url.PathEscape(w.host.node))
	if err != nil {
		return ""
	}
	var lease struct {
		Spec struct {
			RenewTime string `json:"renewTime"`
		} `json:"spec"`
	}
	if json.Unmarshal(b, &lease) != nil {
		return ""
	}
	return lease.Spec.RenewTime
}
