package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// probeServer of /healthz and /readyz.
type probeServer struct {
	// Oldest is the age of the oldest look in progress, Limit the age at which it
	// counts as stuck.
	Oldest func() time.Duration
	Limit  time.Duration

	mu      sync.Mutex
	waiting string
}

// newProbeServer is a server that is not ready.
func newProbeServer(oldest func() time.Duration, limit time.Duration) *probeServer {
	return &probeServer{Oldest: oldest, Limit: limit, waiting: "the controller starts"}
}

// Waiting makes it not ready, with what it waits for; "" makes it ready.
func (s *probeServer) Waiting(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = what
}

// Listen serves until the context ends. An address that is empty or "0" is none.
func (s *probeServer) Listen(ctx context.Context, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for probes on %s: %w; another controller runs on this host, or set -health-address", address, err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}

func (s *probeServer) handler() http.Handler {
	mux := http.NewServeMux()
	for path, problem := range map[string]func() string{"/healthz": s.stuck, "/readyz": s.notReady} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if why := problem(); why != "" {
				http.Error(w, why, http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte("ok"))
		})
	}
	return mux
}

func (s *probeServer) stuck() string {
	if age := s.Oldest(); age > s.Limit {
		return fmt.Sprintf("a reconcile has been running for %s", age.Round(time.Second))
	}
	return ""
}

func (s *probeServer) notReady() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}
