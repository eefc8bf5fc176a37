package clusterapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/certs"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/outbound"
)

// SecretName is the Secret with the server's certificates, in refit's namespace.
const SecretName = "refit-cluster-api"

// Options configure the extension server.
type Options struct {
	// Address as host:port to listen on.
	Address string
	// Names are the DNS names or addresses at which Cluster API reaches it.
	Names []string
	// ClientCA is a file with CA certificates in PEM: a caller must show a client
	// certificate that one of them signed. Required, because a caller moves nodes and
	// commands the external updaters. It is read at each connection, so a rotation
	// needs no restart.
	ClientCA string
	// Servers restricts the connections to external updaters and workload clusters.
	Servers *outbound.Guard
	// Registry for metrics.
	Registry prometheus.Registerer
	Now      func() time.Time
}

// Server answers the hooks. Every replica has one.
type Server struct {
	// Client writes; Live reads without a cache.
	Client client.Client
	Live   client.Reader
	Events events.EventRecorder
	Log    logr.Logger
	Now    func() time.Time

	options Options
	certs   *certs.Keeper
	metrics *metrics
	// workloadClient is the way to a workload cluster by its kubeconfig.
	workloadClient func(*corev1.Secret) (client.Client, error)

	registry hooks.Registry

	mu       sync.Mutex
	reported map[string]string
}

// Setup adds the server, its certificates and its sweeper to a manager.
func Setup(mgr ctrl.Manager, direct client.Client, o Options) error {
	if _, err := clientCAs(o.ClientCA); err != nil {
		return err
	}
	s := New(direct, mgr.GetScheme(), mgr.GetEventRecorder("refit-cluster-api"), mgr.GetLogger().WithName("cluster-api"), o)
	return errors.Join(mgr.Add(s.certs), mgr.Add(s), mgr.Add(sweeper{s}))
}

// New returns a server that does not listen yet. direct reads and writes without a cache.
func New(direct client.Client, scheme *runtime.Scheme, recorder events.EventRecorder, l logr.Logger, o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{Client: direct, Live: direct, Events: recorder, Log: l, Now: o.Now, options: o, metrics: newMetrics(o.Registry), workloadClient: (&workloadClients{Scheme: scheme, Servers: o.Servers}).Client, registry: hooks.Registry{Servers: o.Servers},
		certs: &certs.Keeper{Client: direct, Secret: client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: SecretName}, Names: o.Names, Now: o.Now}}
}

// NeedLeaderElection is false: any replica answers, because all state is in API objects.
func (s *Server) NeedLeaderElection() bool { return false }

// Limits of a connection.
const (
	readTimeout     = 20 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 10 * time.Second
)

// Start listens until the context ends.
func (s *Server) Start(ctx context.Context) error {
	if _, err := clientCAs(s.options.ClientCA); err != nil {
		return err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := clientCAs(s.options.ClientCA)
		if err != nil {
			s.report(ctx, "read the CA of Cluster API's client certificates", err)
			return nil, err
		}
		return &tls.Config{GetCertificate: s.certs.Certificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, nil
	}, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: s.certs.Certificate}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("extension server for Cluster API: %w", err)
	}
	srv := &http.Server{Handler: s.Handler(), TLSConfig: conf, ReadTimeout: readTimeout, WriteTimeout: maxWait + readTimeout, IdleTimeout: idleTimeout,
		// Errors of connecting clients would flood the log.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- srv.ServeTLS(l, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("extension server for Cluster API: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return srv.Shutdown(stop)
}

func clientCAs(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, errors.New("extension server for Cluster API: -cluster-api-client-ca is required with -cluster-api-address: " +
			"a caller without a client certificate could move nodes; docs/reference/cluster-api.md says how to make one")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CA of Cluster API's client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("CA of Cluster API's client certificates: %s has no PEM certificate", file)
	}
	return pool, nil
}

// Handler answers discovery and the hooks.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+hooks.DiscoveryPath, func(w http.ResponseWriter, _ *http.Request) {
		data, err := hooks.Discovery()
		if err != nil {
			http.Error(w, "failed to encode the answer", http.StatusInternalServerError)
			return
		}
		writeJSON(w, data)
	})
	for _, h := range hooks.All() {
		mux.HandleFunc("POST "+h.Path(), func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, h) })
	}
	return mux
}

// How long an answer may take: the caller's timeout, less a reserve for the network.
const (
	defaultWait = hooks.TimeoutSeconds * time.Second
	maxWait     = 30 * time.Second
	reserve     = time.Second
)

func (s *Server) serve(w http.ResponseWriter, r *http.Request, h hooks.Hook) {
	start := s.Now()
	ctx, cancel := context.WithTimeout(log.IntoContext(r.Context(), s.Log), requestTimeout(r))
	defer cancel()
	req, err := h.Decode(r.Body)
	if err != nil {
		s.metrics.observe(h.Name, "invalid", s.Now().Sub(start))
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var a hooks.Answer
	if h.Claims {
		a = s.canUpdate(ctx, h, req)
	} else {
		a = s.updateMachine(ctx, req)
	}
	data, err := h.EncodeAnswer(a)
	if err != nil {
		http.Error(w, "failed to encode the answer", http.StatusInternalServerError)
		return
	}
	s.metrics.observe(h.Name, outcome(h, a), s.Now().Sub(start))
	writeJSON(w, data)
}

func writeJSON(w http.ResponseWriter, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a disconnected caller calls again
}

// requestTimeout returns how long the caller waits, less the reserve.
func requestTimeout(r *http.Request) time.Duration {
	d := defaultWait
	if t, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && t > 0 {
		d = min(t, maxWait)
	}
	return max(d-reserve, d/2)
}

// maxReported is how many reported errors are kept; beyond it errors are logged again.
const maxReported = 1000

// report logs an error once while it stays the same. It never gets a body.
func (s *Server) report(ctx context.Context, what string, err error) {
	s.mu.Lock()
	if s.reported == nil || len(s.reported) > maxReported {
		s.reported = map[string]string{}
	}
	repeated := s.reported[what] == err.Error()
	s.reported[what] = err.Error()
	s.mu.Unlock()
	if !repeated {
		log.FromContext(ctx).Error(err, "failed to "+what)
	}
}

// outcome returns the label value for the metrics.
func outcome(h hooks.Hook, a hooks.Answer) string {
	switch {
	case a.Failed:
		return "failure"
	case h.Claims && len(a.Patches) == 0:
		return "nothing"
	case h.Claims:
		return "patches"
	case a.RetryAfter > 0:
		return "progress"
	}
	return "done"
}
