package simulate

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// sample is one line of a metrics page.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// parse reads the lines whose name begins with one of the prefixes.
func parse(text string, prefixes ...string) []sample {
	var out []sample
	for line := range strings.SplitSeq(text, "\n") {
		if !hasPrefix(line, prefixes) {
			continue
		}
		key, value, ok := cutLast(line, ' ')
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		s := sample{name: key, labels: map[string]string{}, value: v}
		if name, rest, ok := strings.Cut(key, "{"); ok {
			s.name, s.labels = name, labels(strings.TrimSuffix(rest, "}"))
		}
		out = append(out, s)
	}
	return out
}

func hasPrefix(line string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return false
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// labels of the form a="x",b="y"; the values that are looked for hold no quotes.
func labels(text string) map[string]string {
	out := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, `="`)
		if !ok {
			break
		}
		value, after, ok := strings.Cut(rest, `"`)
		if !ok {
			break
		}
		out[name], text = value, strings.TrimPrefix(after, ",")
	}
	return out
}

// Counts are writes by "VERB resource" or "VERB resource/subresource".
type Counts map[string]float64

// writesOf reads apiserver_request_total for successful writes of what an update
// writes. Leases and what the servers write for themselves are left out.
func writesOf(text string) Counts {
	of := map[string]bool{"nodes": true, "nodeupdates": true, "contents": true, "bundles": true, "clusterupdates": true,
		"pinnedimagesets": true, "updatepools": true, "trustpolicies": true, "events": true, "pods": true}
	out := Counts{}
	for _, s := range parse(text, "apiserver_request_total{") {
		verb, code := s.labels["verb"], s.labels["code"]
		if !of[s.labels["resource"]] || !strings.HasPrefix(code, "2") || verb == "GET" || verb == "LIST" || verb == "WATCH" || verb == "CONNECT" {
			continue
		}
		key := verb + " " + s.labels["resource"]
		if sub := s.labels["subresource"]; sub != "" {
			key += "/" + sub
		}
		out[key] += s.value
	}
	return out
}

// Minus is what was counted since.
func (c Counts) Minus(before Counts) Counts {
	out := Counts{}
	for k, v := range c {
		if d := v - before[k]; d > 0 {
			out[k] = d
		}
	}
	return out
}

// Split sums what the kubelets wrote, what events are, and the rest.
func (c Counts) Split() (ours, kubelet, events float64) {
	for k, v := range c {
		switch {
		case strings.HasSuffix(k, " nodes/status"):
			kubelet += v
		case strings.HasSuffix(k, " events"):
			events += v
		default:
			ours += v
		}
	}
	return ours, kubelet, events
}

// CountWrites reads what the API server counted until now.
func CountWrites(ctx context.Context, cfg *rest.Config) (Counts, error) {
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	text, err := get(ctx, hc, strings.TrimSuffix(cfg.Host, "/")+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return writesOf(text), nil
}

func get(ctx context.Context, hc *http.Client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := hc.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, res.Status)
	}
	return string(text), err
}

// histogram by upper edge.
type histogram struct {
	edges      map[float64]float64
	count, sum float64
}

const (
	decisionMetric  = "refit_decision_seconds"
	processorMetric = "refit_decision_processor_seconds"
	lookMetric      = "controller_runtime_reconcile_time_seconds"
)

// Looks are the looks of a controller's processes, by the reconciler's name.
type Looks struct{ decided, processor, whole map[string]*histogram }

// NewLooks has none yet.
func NewLooks() *Looks {
	return &Looks{map[string]*histogram{}, map[string]*histogram{}, map[string]*histogram{}}
}

// Begin leaves out what a process has counted until now; address is where it
// serves its metrics.
func (l *Looks) Begin(ctx context.Context, address string) error { return l.read(ctx, address, -1) }

// Read adds what a process has counted.
func (l *Looks) Read(ctx context.Context, address string) error { return l.read(ctx, address, 1) }

func (l *Looks) read(ctx context.Context, address string, sign float64) error {
	text, err := get(ctx, http.DefaultClient, "http://"+address+"/metrics")
	if err != nil {
		return fmt.Errorf("read the controller's metrics: %w", err)
	}
	l.add(text, sign)
	return nil
}

func (l *Looks) add(text string, sign float64) {
	for _, s := range parse(text, decisionMetric, processorMetric, lookMetric) {
		to := l.whole
		switch {
		case strings.HasPrefix(s.name, decisionMetric):
			to = l.decided
		case strings.HasPrefix(s.name, processorMetric):
			to = l.processor
		}
		name := s.labels["controller"]
		h := to[name]
		if h == nil {
			h = &histogram{edges: map[float64]float64{}}
			to[name] = h
		}
		switch {
		case strings.HasSuffix(s.name, "_bucket"):
			edge, err := strconv.ParseFloat(s.labels["le"], 64)
			if err == nil {
				h.edges[edge] += sign * s.value
			}
		case strings.HasSuffix(s.name, "_count"):
			h.count += sign * s.value
		case strings.HasSuffix(s.name, "_sum"):
			h.sum += sign * s.value
		}
	}
}

// quantile returns the smallest upper edge that covers the share of all values.
func (h *histogram) quantile(q float64) float64 {
	best := math.Inf(1)
	for edge, n := range h.edges {
		if n >= q*h.count && edge < best {
			best = edge
		}
	}
	return best
}

// Decisions of one reconciler; the percentile is the upper edge of the
// histogram's bucket. Durations are seconds.
type Decisions struct {
	Count float64 `json:"count"`
	Mean  float64 `json:"meanSeconds"`
	P99   float64 `json:"p99Seconds"`
	// ProcessorP99 is of the processor time alone, which a busy machine stretches less.
	ProcessorP99 float64 `json:"processorP99Seconds"`
	// Look is the mean of a whole look, with everything that was read and written.
	Look float64 `json:"meanLookSeconds"`
}

// Summary of all that was read.
func (l *Looks) Summary() map[string]Decisions {
	out := map[string]Decisions{}
	for name, h := range l.decided {
		if h.count <= 0 {
			continue
		}
		d := Decisions{Count: h.count, Mean: h.sum / h.count, P99: min(h.quantile(0.99), 3600)}
		if p := l.processor[name]; p != nil && p.count > 0 {
			d.ProcessorP99 = min(p.quantile(0.99), 3600)
		}
		if w := l.whole[name]; w != nil && w.count > 0 {
			d.Look = w.sum / w.count
		}
		out[name] = d
	}
	return out
}
