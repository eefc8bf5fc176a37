package statuspage

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/areas"
)

// Options of the status page.
type Options struct {
	// Address as host:port; empty for none.
	Address string
	// Certificate and Key are files of a TLS server certificate, read at each connection.
	// Without them Address must be a loopback address.
	Certificate, Key string
	// WithoutToken answers requests without a token. Address must be a loopback address.
	WithoutToken bool
	// Without are the areas that are left out.
	Without areas.Set
	Now     func() time.Time
}

// Validate refuses options that would show the page to everyone, or send tokens in the clear.
func (o Options) Validate() error {
	if o.Address == "" {
		if o.Certificate != "" || o.Key != "" || o.WithoutToken {
			return errors.New("-status-certificate, -status-key and -status-without-token need -status-address: set it, or leave them out")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return fmt.Errorf("-status-address %q is not HOST:PORT: %w; write it as 127.0.0.1:18745", o.Address, err)
	}
	if (o.Certificate == "") != (o.Key == "") {
		return errors.New("one of -status-certificate and -status-key is missing: set both, or none on a loopback address")
	}
	if IsLoopback(host) {
		return nil
	}
	if o.WithoutToken {
		return fmt.Errorf("-status-without-token would show the page to everyone who reaches %s: use a loopback address, or leave it out", o.Address)
	}
	if o.Certificate == "" {
		return fmt.Errorf("-status-address %s is no loopback address, and tokens would travel in the clear: set -status-certificate and -status-key, or use 127.0.0.1:18745", o.Address)
	}
	return nil
}

// Server answers browsers. Every replica has one.
type Server struct {
	options Options
	reader  client.Reader
	access  *access
	log     logr.Logger
	// direct reads objects that are not worth a cache.
	direct   client.Reader
	plans    planCache
	receipts receiptCache
	streams  chan struct{}
	// interval between two looks for a change while a stream is open.
	interval time.Duration

	mu   sync.Mutex
	last *state
}

// Setup adds the server to a manager.
func Setup(mgr ctrl.Manager, o Options) error {
	s := New(mgr.GetClient(), mgr.GetLogger().WithName("status-page"), o)
	s.direct = mgr.GetAPIReader()
	return mgr.Add(s)
}

// Limits of the server.
const (
	readTimeout     = 20 * time.Second
	writeTimeout    = 20 * time.Second
	stopTimeout     = 5 * time.Second
	maxHeader       = 32 << 10
	maxStreams      = 64
	streamInterval  = 2 * time.Second
	snapshotMaxAge  = time.Second
	streamLifetime  = 10 * time.Minute
	requestDeadline = 15 * time.Second
)

// New makes a server that is not listening yet. The client reads objects and asks for reviews.
func New(c client.Client, log logr.Logger, o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{options: o, reader: c, direct: c, access: newAccess(c, o.Now, "one of the ClusterRoles refit-status-viewer and refit-status-technician"), log: log, streams: make(chan struct{}, maxStreams), interval: streamInterval}
}

// NeedLeaderElection is false: any replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start listens until the context ends.
func (s *Server) Start(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("listen for the status page on %s: %w; set another -status-address", s.options.Address, err)
	}
	srv := &http.Server{Handler: s.Handler(), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- s.serve(srv, l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("status page: %w", err)
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return srv.Shutdown(stop)
	}
}

func (s *Server) serve(srv *http.Server, l net.Listener) error {
	if s.options.Certificate == "" {
		return srv.Serve(l)
	}
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(s.options.Certificate, s.options.Key)
		if err != nil {
			s.log.Error(err, "failed to load the certificate of the status page")
		}
		return &c, err
	}
	if _, err := load(nil); err != nil {
		return err
	}
	srv.TLSConfig = &tls.Config{GetCertificate: load, MinVersion: tls.VersionTLS12}
	return srv.ServeTLS(l, "", "")
}

//go:embed assets
var assets embed.FS

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, kind := range map[string]string{"/style.css": "text/css; charset=utf-8", "/refit.js": "text/javascript; charset=utf-8", "/favicon.svg": "image/svg+xml"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			data, err := assets.ReadFile("assets" + path)
			if err != nil {
				http.Error(w, "this file is missing in the program", http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(data) // a browser that left needs no answer
		})
	}
	mux.HandleFunc("GET /{$}", s.guard(PathStatus, s.writePage))
	mux.HandleFunc("GET /receipt", s.guard(PathStatus, s.writeReceipt))
	mux.HandleFunc("GET /api/status", s.guard(PathStatus, s.writeJSON))
	mux.HandleFunc("GET /events", s.guard(PathStatus, s.stream(statusEvent)))
	mux.HandleFunc("GET /technician", s.guard(PathTechnician, s.writeTechnician))
	mux.HandleFunc("GET /technician/events", s.guard(PathTechnician, s.stream(technicianEvent)))
	return secured(mux)
}

// secured sets the headers of every answer: nothing is loaded from another origin, framed or
// stored.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// guard lets a request through that may get a path.
func (s *Server) guard(path string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		code, why := s.decide(r, path)
		if code == http.StatusOK {
			next(w, r)
			return
		}
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="refit: a Kubernetes token is the password", charset="UTF-8"`)
		}
		http.Error(w, why, code)
	}
}

// decide checks the token. Without tokens it checks that the browser asked this machine by its
// name: a page of another site cannot read the answer over a name that leads here.
func (s *Server) decide(r *http.Request, path string) (code int, why string) {
	if s.options.WithoutToken {
		if IsLoopback(hostOf(r.Host)) {
			return http.StatusOK, ""
		}
		return http.StatusForbidden, "the status page answers under localhost only: open it as http://localhost and its port"
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
	defer cancel()
	return s.access.check(ctx, tokenOf(r), path)
}
