package bundleserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// maxConnections are open at the same time; others wait.
	maxConnections = 128
	// maxHeader bounds the header of a request in bytes.
	maxHeader = 16 << 10
	// bodyTime is how long a client may take for the header of a request, and for a body that
	// nothing reads.
	bodyTime = 10 * time.Second
	// stopTime is how long transfers may go on after the end was asked for.
	stopTime = 5 * time.Second
	// reportEvery is how often running transfers are logged.
	reportEvery = 5 * time.Second
	// maxLogged bounds a path in the log.
	maxLogged = 300
)

// stats count what was served.
type stats struct {
	requests, open, sent, damaged atomic.Int64
}

// Summary returns what was served so far, as a sentence for people.
func (s *Server) Summary() string {
	out := fmt.Sprintf("%s answered, %s sent", text.Count(int(s.stats.requests.Load()), "request"), explain.Bytes(s.stats.sent.Load()))
	if n := s.stats.damaged.Load(); n > 0 {
		out += fmt.Sprintf(", %s of damaged blobs refused", text.Count(int(n), "read"))
	}
	return out
}

// Damaged returns how many reads failed.
func (s *Server) Damaged() int64 { return s.stats.damaged.Load() }

// Serve answers requests until ctx ends, over TLS if conf is not nil. It closes the listener and
// returns after the last connection is closed.
func (s *Server) Serve(ctx context.Context, l net.Listener, conf *tls.Config) error {
	server := &http.Server{
		Handler: s.logged(s), TLSConfig: conf, ReadHeaderTimeout: bodyTime,
		// Each step of a blob sets its own deadline; this one is for everything else.
		WriteTimeout: slotWait + writeTime, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		// Connections of unknown clients would fill the log.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	l = netutil.LimitListener(l, maxConnections)
	ended := make(chan error, 1)
	go func() {
		if conf != nil {
			ended <- server.ServeTLS(l, "", "")
			return
		}
		ended <- server.Serve(l)
	}()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			s.report()
		case <-ctx.Done():
			return stop(server, ended)
		}
	}
}

// stop lets transfers end for a while, then cuts them off: clients see that.
func stop(server *http.Server, ended <-chan error) error {
	grace, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// report logs that transfers run: a large layer takes minutes before its own line comes.
func (s *Server) report() {
	if n := s.stats.open.Load(); n > 0 {
		s.log.Info("serving", "requests", n, "sent", explain.Bytes(s.stats.sent.Load()))
	}
}

// logged logs each request when it ends.
func (s *Server) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		s.stats.open.Add(1)
		if r.ContentLength != 0 { // a read timeout of the server would end long responses, too
			_ = http.NewResponseController(w).SetReadDeadline(start.Add(bodyTime))
		}
		done := false
		defer func() {
			s.stats.open.Add(-1)
			s.stats.requests.Add(1)
			attrs := []any{"client", r.RemoteAddr, "method", r.Method, "path", text.Truncate(r.URL.RequestURI(), maxLogged),
				"status", rec.status, "bytes", rec.bytes, "duration", time.Since(start).Round(time.Millisecond)}
			if !done {
				s.log.Warn("response aborted", attrs...)
				return
			}
			s.log.Info("request answered", attrs...)
		}()
		next.ServeHTTP(rec, r)
		done = true
	})
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController find the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
