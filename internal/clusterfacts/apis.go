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
	// deprecatedMetric is 1 for every deprecated API that was asked for since
	// the API server started.
	deprecatedMetric = "apiserver_requested_deprecated_apis{"
	// maxMetrics bounds what is read of an API server's metrics, in bytes.
	maxMetrics = 256 << 20
	maxLine    = 1 << 20
)

// Metrics opens the metrics of an API server.
type Metrics func(ctx context.Context) (io.ReadCloser, error)

// MetricsOf opens the metrics of the API server that a configuration leads to.
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

// serverName is in the certificate of every API server of kubeadm, and of no kubelet.
const serverName = "kubernetes.default.svc"

// MetricsAt opens the metrics of the API server at an address, with the credentials of
// a configuration. The address is a pod's annotation, which a node can write: the
// credentials go to the holder of an API server's certificate only.
func MetricsAt(cfg *rest.Config) func(address string) Metrics {
	return func(address string) Metrics {
		one := rest.CopyConfig(cfg)
		one.Host, one.APIPath, one.ServerName = "https://"+address, "", serverName
		return func(ctx context.Context) (io.ReadCloser, error) {
			open, err := MetricsOf(one)
			if err != nil {
				return nil, err
			}
			return open(ctx)
		}
	}
}

// advertised is where a static pod of kubeadm says that its API server answers.
const advertised = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"

// InUse are the APIs in use that some later version does not serve, as all API
// servers of the cluster say: each counts only what it was asked itself.
type InUse struct {
	APIs []gate.RemovedAPI
	// Missing names the servers that did not tell, with what came back.
	Missing string
}

// InUseOnAll asks every API server that runs as a static pod, at the address that it
// advertises; where fewer than two are known, the one that any leads to.
func InUseOnAll(ctx context.Context, c client.Reader, anyone Metrics, at func(address string) Metrics) (InUse, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "kube-apiserver"}); err != nil {
		return InUse{}, fmt.Errorf("list the API servers: %w", err)
	}
	var addresses []string
	for i := range pods.Items {
		if a := pods.Items[i].Annotations[advertised]; a != "" && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) < 2 || at == nil {
		apis, err := DeprecatedAPIs(ctx, anyone)
		return InUse{APIs: apis}, err
	}
	slices.Sort(addresses)
	return askAll(ctx, addresses, at), nil
}

func askAll(ctx context.Context, addresses []string, at func(address string) Metrics) InUse {
	var out InUse
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

// DeprecatedAPIs are the APIs in use that a later version does not serve, from that
// metric only.
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

// labelsOf reads name="value",... up to the closing brace, and the value after it.
// The values of this metric are API names: they hold no quote and no brace.
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
