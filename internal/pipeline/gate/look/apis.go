package look

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"

	"k8s.io/client-go/rest"

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

// DeprecatedAPIs are the APIs in use that some later version does not serve.
// Only that metric is looked at.
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
