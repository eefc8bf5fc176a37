package controlplane

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

// Downtime is what was measured for one update since the process began.
type Downtime struct {
	// Total time without an answer, and the longest without one in between.
	Total, Longest time.Duration
}

// DowntimeMeter measures; the zero value asks nobody.
type DowntimeMeter struct {
	// Ask reports whether the API server answers and says that it is ready.
	Ask func(context.Context) bool
	// Now is the clock.
	Now func() time.Time

	mu     sync.Mutex
	of     string
	active bool
	since  time.Time // without an answer since, zero while it answers
	sum    Downtime
}

// NewDowntimeMeter makes a meter that asks the API server of a configuration.
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
	return &DowntimeMeter{Now: now, Ask: func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		resp, err := c.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode < http.StatusInternalServerError // who asks without a right to is answered too
	}}, nil
}

// Start asks until the context ends; a manager runs it.
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

// NeedLeaderElection is true: only who moves nodes measures.
func (*DowntimeMeter) NeedLeaderElection() bool { return true }

// While says for which update it is measured, and whether its nodes move: only
// then is asked. Another update begins at nothing.
func (m *DowntimeMeter) While(update string, moving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of != update {
		m.of, m.sum = update, Downtime{}
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
	ok := m.Ask(ctx)
	if ctx.Err() == nil {
		m.recordAnswer(ok, asked)
	}
}

// recordAnswer takes an answer to what was asked at a time.
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

// Read is what was measured until the last time the API server was back.
func (m *DowntimeMeter) Read() Downtime {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}
