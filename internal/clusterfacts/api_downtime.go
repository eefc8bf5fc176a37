package clusterfacts

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	downtimeInterval = time.Second
	downtimeTimeout  = time.Second
)

// Downtime is what was measured for one update since the process started.
type Downtime struct {
	// Total is the time without an answer, Longest the longest period of it.
	Total, Longest time.Duration
}

// DowntimeMeter measures how long the API server does not answer.
type DowntimeMeter struct {
	// IsReady reports whether the API server answers and is ready.
	IsReady func(context.Context) bool
	// Now is the clock.
	Now func() time.Time

	mu     sync.Mutex
	update string
	active bool
	since  time.Time // start of the current downtime, zero while it answers
	sum    Downtime
}

// NewDowntimeMeter returns a meter that probes the API server of a configuration.
func NewDowntimeMeter(cfg *rest.Config, now func() time.Time) (*DowntimeMeter, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("measure the API server: %w", err)
	}
	c := &http.Client{Timeout: downtimeTimeout, Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}}
	url := strings.TrimSuffix(cfg.Host, "/") + "/readyz"
	if !strings.Contains(url, "://") {
		url = "https://" + url
	}
	return &DowntimeMeter{Now: now, IsReady: func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		resp, err := c.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode < http.StatusInternalServerError // "forbidden" is an answer too
	}}, nil
}

// Start probes until the context ends; a manager runs it.
func (m *DowntimeMeter) Start(ctx context.Context) error {
	t := time.NewTicker(downtimeInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			m.probe(ctx)
		}
	}
}

// NeedLeaderElection is true: only the replica that moves nodes measures.
func (*DowntimeMeter) NeedLeaderElection() bool { return true }

// Track sets the update to measure for, and whether its nodes move: only then the meter probes.
// Another update starts at zero.
func (m *DowntimeMeter) Track(update string, moving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.update != update {
		m.update, m.sum = update, Downtime{}
	}
	m.active = moving
}

func (m *DowntimeMeter) probe(ctx context.Context) {
	m.mu.Lock()
	active := m.active || !m.since.IsZero()
	m.mu.Unlock()
	if !active {
		return
	}
	asked := m.Now()
	ok := m.IsReady(ctx)
	if ctx.Err() == nil {
		m.recordAnswer(ok, asked)
	}
}

// recordAnswer records whether a probe that started at a time was answered.
func (m *DowntimeMeter) recordAnswer(ok bool, asked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !ok && m.since.IsZero():
		m.since = asked
	case ok && !m.since.IsZero():
		d := asked.Sub(m.since)
		m.sum.Total += d
		m.sum.Longest = max(m.sum.Longest, d)
		m.since = time.Time{}
	}
}

// Measured returns the downtime up to the last time the API server came back.
func (m *DowntimeMeter) Measured() Downtime {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}
