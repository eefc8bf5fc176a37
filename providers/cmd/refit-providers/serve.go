package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

// listPath is where the list is served.
const listPath = "/boot-images.json"

// server serves the last list.
type server struct {
	mu   sync.Mutex
	list []byte
}

func (s *server) set(list *bootstream.Stream) error {
	data, err := bootstream.EncodeGeneric(list)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = data
	return nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	list := s.list
	s.mu.Unlock()
	switch {
	case r.URL.Path != listPath && r.URL.Path != "/healthz":
		http.NotFound(w, r)
	case r.URL.Path == "/healthz":
		_, _ = w.Write([]byte("ok\n"))
	case list == nil:
		http.Error(w, "the clouds have not been asked yet", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(list)
	}
}

// serve serves until the context ends, and asks the clouds meanwhile.
func (p *program) serve(ctx context.Context, l net.Listener, certificate, key string) error {
	defer l.Close()
	if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
		return err
	}
	h := &http.Server{Handler: &p.served, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(certificate, key) // a renewed one serves at once
			return &c, err
		}}}
	failed := make(chan error, 1)
	go func() { failed <- h.ServeTLS(l, "", "") }()
	asked := make(chan struct{})
	loop, stop := context.WithCancel(ctx)
	go func() { defer close(asked); p.loop(loop) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	<-asked
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if e := h.Shutdown(end); err == nil || errors.Is(err, http.ErrServerClosed) {
		err = e
	}
	return err
}

// loop asks and uploads at each interval. A failed pass leaves the last list.
func (p *program) loop(ctx context.Context) {
	every := time.Duration(p.config.EveryMinutes) * time.Minute
	for {
		if _, _, err := p.pass(ctx, true); err != nil && ctx.Err() == nil {
			slog.Error("failed to ask the clouds", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}
