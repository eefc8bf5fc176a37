package clusterfacts

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/pipeline/gate"
)

const (
	// deprecatedMetric is 1 for every deprecated API with a request since the API
	// server started.
	deprecatedMetric = "apiserver_requested_deprecated_apis{"
	// maxMetrics is how many bytes of an API server's metrics are read.
	maxMetrics = 256 << 20
	maxLine    = 1 << 20
)

// Metrics opens the metrics of an API server.
type Metrics func(ctx context.Context) (io.ReadCloser, error)

// MetricsOf opens the metrics of a configuration's API server.
func MetricsOf(cfg *rest.Config) (Metrics, error) {
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	return func(ctx context.Context) (io.ReadCloser, error) {
		u := *base
		u.Path = "/metrics"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, err
		}
		resp, err := hc.Do(req)
		if err != nil {
			return nil, fmt.Errorf("GET /metrics: %w", err)
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			return nil, fmt.Errorf("GET /metrics: the API server answers %s", resp.Status)
		}
		return resp.Body, nil
	}, nil
}

// serverName is in the certificate of every kubeadm API server, and of no kubelet.
const serverName = "kubernetes.default.svc"

// MetricsAt opens the metrics of the API server at an address, with the credentials of a
// configuration. The address is a pod's annotation, which a node can write, so the credentials
// are sent only to a server with an API server's certificate.
func MetricsAt(cfg *rest.Config) func(address string) Metrics {
	return func(address string) Metrics {
		server := rest.CopyConfig(cfg)
		server.Host, server.APIPath, server.ServerName = "https://"+address, "", serverName
		return func(ctx context.Context) (io.ReadCloser, error) {
			open, err := MetricsOf(server)
			if err != nil {
				return nil, err
			}
			return open(ctx)
		}
	}
}

// advertised is the annotation with the address of a kubeadm API server's static pod.
const advertised = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"

// APIsInUse are the APIs in use that a later version removes, as reported by all API servers:
// each counts only its own requests.
type APIsInUse struct {
	APIs []gate.RemovedAPI
	// Missing names the servers that did not report, with their errors.
	Missing string
}

// ListAPIsInUse asks every API server that runs as a static pod, at its advertised address. If
// fewer than two are known it asks any one.
func ListAPIsInUse(ctx context.Context, c client.Reader, anyone Metrics, at func(address string) Metrics) (APIsInUse, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "kube-apiserver"}); err != nil {
		return APIsInUse{}, fmt.Errorf("list the API servers: %w", err)
	}
	var addresses []string
	for i := range pods.Items {
		if a := pods.Items[i].Annotations[advertised]; a != "" && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) < 2 || at == nil {
		apis, err := DeprecatedAPIs(ctx, anyone)
		return APIsInUse{APIs: apis}, err
	}
	slices.Sort(addresses)
	return askAll(ctx, addresses, at), nil
}

func askAll(ctx context.Context, addresses []string, at func(address string) Metrics) APIsInUse {
	var out APIsInUse
	var missing []string
	for _, a := range addresses {
		apis, err := DeprecatedAPIs(ctx, at(a))
		if err != nil {
			missing = append(missing, a+": "+err.Error())
			continue
		}
		for _, x := range apis {
			if !slices.Contains(out.APIs, x) {
				out.APIs = append(out.APIs, x)
			}
		}
	}
	if len(missing) > 0 {
		out.Missing = "not every API server reported: " + strings.Join(missing, "; ")
	}
	return out
}

// DeprecatedAPIs returns the APIs in use that a later version removes, from one API server's
// metrics.
func DeprecatedAPIs(ctx context.Context, open Metrics) ([]gate.RemovedAPI, error) {
	body, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseDeprecated(io.LimitReader(body, maxMetrics))
}

func parseDeprecated(r io.Reader) ([]gate.RemovedAPI, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	var out []gate.RemovedAPI
	for s.Scan() {
		rest, ok := strings.CutPrefix(s.Text(), deprecatedMetric)
		if !ok {
			continue
		}
		l, value := labelsOf(rest)
		if value == "0" || l["removed_release"] == "" {
			continue
		}
		out = append(out, gate.RemovedAPI{Group: l["group"], Version: l["version"], Resource: l["resource"], Subresource: l["subresource"], RemovedIn: l["removed_release"]})
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	sort.Slice(out, func(i, j int) bool { return fmt.Sprint(out[i]) < fmt.Sprint(out[j]) })
	return out, nil
}

// labelsOf parses name="value",... up to the closing brace, and the value after it. The label
// values of this metric are API names: they contain no quote and no brace.
func labelsOf(s string) (map[string]string, string) {
	in, value, _ := strings.Cut(s, "}")
	out := map[string]string{}
	for _, pair := range strings.Split(in, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			out[strings.TrimSpace(k)] = strings.Trim(v, `"`)
		}
	}
	return out, strings.TrimSpace(value)
}
