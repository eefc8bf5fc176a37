package etcd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"
)

const (
	// askTime bounds one question.
	askTime = 3 * time.Second
	// maxMetrics bounds what is read of the metrics, in bytes.
	maxMetrics = 16 << 20
	maxHealth  = 64 << 10
	// defaultQuota is etcd's own when none is set, in bytes.
	defaultQuota = 2 << 30
	// longestReason of what etcd answers, in bytes.
	longestReason = 200
)

// Health of a member. Sizes are in bytes, 0 if unknown.
type Health struct {
	Healthy bool
	// Message says why it is not.
	Message            string
	Size, InUse, Quota int64
}

// MetricsURL picks the loopback address on which a member answers without
// certificates from the value of --listen-metrics-urls; empty if there is none.
func MetricsURL(flag string) string {
	for _, s := range strings.Split(flag, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		if err == nil && u.Scheme == "http" && (u.Hostname() == "127.0.0.1" || u.Hostname() == "localhost" || u.Hostname() == "::1") {
			return strings.TrimSuffix(u.String(), "/")
		}
	}
	return ""
}

// QueryHealth asks the member at a metrics address.
func QueryHealth(ctx context.Context, base string) Health {
	var h Health
	body, status, err := getLimited(ctx, base+"/health", maxHealth)
	if err != nil {
		h.Message = "it does not answer on " + base + "/health"
		return h
	}
	// A member that is not healthy answers 503 and says why.
	var answer struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}
	switch err := json.Unmarshal(body, &answer); {
	case err != nil:
		h.Message = fmt.Sprintf("%s/health answers %d and no JSON", base, status)
	case answer.Health == "true":
		h.Healthy = true
	default:
		h.Message = text.Truncate(answer.Reason, longestReason)
		if h.Message == "" {
			h.Message = fmt.Sprintf("%s/health answers %d: it has no leader, or an alarm", base, status)
		}
	}
	if text, status, err := getLimited(ctx, base+"/metrics", maxMetrics); err == nil && status == http.StatusOK {
		h.sizes(string(text))
	}
	return h
}

// sizes reads three of the member's metrics.
func (h *Health) sizes(text string) {
	found := map[string]int64{}
	s := bufio.NewScanner(strings.NewReader(text))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		name, value, ok := strings.Cut(s.Text(), " ")
		if !ok {
			continue
		}
		switch name {
		case "etcd_mvcc_db_total_size_in_bytes", "etcd_mvcc_db_total_size_in_use_in_bytes", "etcd_server_quota_backend_bytes":
			if f, err := strconv.ParseFloat(value, 64); err == nil && f >= 0 && f < 1<<62 {
				found[name] = int64(f)
			}
		}
	}
	h.Size, h.InUse, h.Quota = found["etcd_mvcc_db_total_size_in_bytes"], found["etcd_mvcc_db_total_size_in_use_in_bytes"], found["etcd_server_quota_backend_bytes"]
	if h.Quota == 0 && h.Size > 0 {
		h.Quota = defaultQuota
	}
}

func getLimited(ctx context.Context, address string, most int64) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, err
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, most))
	return body, resp.StatusCode, err
}
