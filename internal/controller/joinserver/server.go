package joinserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/ignition"

	"github.com/refit-dev/refit/internal/controller/clusterapi/certs"
	"github.com/refit-dev/refit/internal/convert"
)

// Options of the server.
type Options struct {
	// Address as host:port; empty for none.
	Address string
	// Names under which machines reach it: DNS names or addresses.
	Names []string
	Now   func() time.Time
}

// Server gives configurations. Every replica has one.
type Server struct {
	// Client reads and writes past any cache.
	Client client.Client
	Events events.EventRecorder
	Log    logr.Logger
	Now    func() time.Time

	address string
	certs   *certs.Keeper

	wholes sync.Mutex
	known  map[string]rendered
}

// Setup adds the server and its certificates to a manager.
func Setup(mgr ctrl.Manager, direct client.Client, o Options) error {
	s := New(direct, mgr.GetEventRecorder("refit-joins"), mgr.GetLogger().WithName("joins"), o)
	return errors.Join(mgr.Add(s.certs), mgr.Add(s))
}

// New makes a server that is not listening yet.
func New(direct client.Client, recorder events.EventRecorder, l logr.Logger, o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{Client: direct, Events: recorder, Log: l, Now: o.Now, address: o.Address,
		certs: &certs.Keeper{Client: direct, Secret: client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: convert.Server}, Names: o.Names, Now: o.Now}}
}

// Listen sets the address, and returns who keeps the certificate.
func (s *Server) Listen(address string) *certs.Keeper {
	s.address = address
	return s.certs
}

// NeedLeaderElection is false: any replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Limits of a connection, and how often old records are looked for.
const (
	within     = 20 * time.Second
	stopWithin = 10 * time.Second
	sweepEvery = 10 * time.Minute
	mostHeader = 16 << 10
)

// Start listens until the context ends.
func (s *Server) Start(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("server for machines that join: %w", err)
	}
	srv := &http.Server{Handler: s.Handler(), TLSConfig: &tls.Config{GetCertificate: s.certs.Certificate, MinVersion: tls.VersionTLS12}, ReadTimeout: within, WriteTimeout: within,
		IdleTimeout: within, MaxHeaderBytes: mostHeader, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- srv.ServeTLS(l, "", "") }()
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("server for machines that join: %w", err)
		case <-every.C:
			if err := s.sweep(ctx); err != nil {
				s.Log.Error(err, "old records of tokens stay")
			}
		case <-ctx.Done():
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
			defer cancel()
			return srv.Shutdown(stop)
		}
	}
}

// Handler answers machines.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		token, ok := strings.CutPrefix(r.URL.Path, convert.Path)
		if !ok || r.Method != http.MethodGet && r.Method != http.MethodPost {
			http.Error(w, "machines ask GET "+convert.Path+"TOKEN", http.StatusNotFound)
			return
		}
		from, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			from = r.RemoteAddr
		}
		ctx, cancel := context.WithTimeout(r.Context(), within)
		defer cancel()
		if r.Method == http.MethodPost {
			s.receiveReport(ctx, w, r, token, from)
			return
		}
		s.writeAnswer(ctx, w, request{token: token, from: from, host: r.Host}, ignition.ReadClient(r.Header.Get("Accept"), r.Header.Get("User-Agent")))
	})
}

// request of a machine.
type request struct{ token, from, host string }

func (s *Server) writeAnswer(ctx context.Context, w http.ResponseWriter, r request, c ignition.Client) {
	used, err := s.readRecord(ctx, r.token, r.from)
	if err != nil {
		s.writeRefusal(w, err)
		return
	}
	pool, held, err := s.pool(ctx, used.Labels[convert.LabelJoinPool])
	if err == nil {
		pool.TooOld, err = s.recordedTooOld(ctx, held)
	}
	if err != nil {
		s.writeRefusal(w, err)
		return
	}
	var config []byte
	d, kind := ignition.DecideAnswer(c, pool), "application/vnd.coreos.ignition+json"
	switch d.Action {
	case ignition.AnswerRefuse:
		s.refuse(ctx, w, r, d, used, held)
		return
	case ignition.AnswerMessage: // holds no secret, so it uses nothing up
		if err = s.recordRefusal(ctx, used, held, r.from, d.Text); err == nil {
			config, err = ignition.Message(d.Spec, d.Text)
		}
	case ignition.AnswerCloudInit:
		kind = "text/cloud-config"
		fallthrough
	default:
		config, err = s.serve(ctx, r, d, pool, held, used)
	}
	if err != nil {
		s.writeRefusal(w, err)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(config) // who does not hear it asks again
}

// refuse answers clients without a console. Only machines with cloud-init are refused because of
// their pool, and that is recorded.
func (s *Server) refuse(ctx context.Context, w http.ResponseWriter, r request, d ignition.Answer, used, held *corev1.Secret) {
	if d.Recorded {
		_ = s.recordRefusal(ctx, used, held, r.from, d.Text) // the machine asks again
	}
	http.Error(w, d.Text, http.StatusBadRequest)
}

// serve makes what a machine is given, and uses its token up.
func (s *Server) serve(ctx context.Context, r request, d ignition.Answer, pool ignition.Pool, held, used *corev1.Secret) (config []byte, err error) {
	if d.Action == ignition.AnswerCloudInit {
		config, err = s.userData(ctx, pool.Name, held)
	} else if config, err = s.fullConfig(ctx, pool, held.Data[convert.KeyConfig]); err == nil {
		config, err = s.withMachineCheck(ctx, r, held, config)
	}
	if err != nil {
		return nil, err
	}
	return config, s.claimToken(ctx, used, r.from)
}

// writeRefusal answers without a word about what is inside.
func (s *Server) writeRefusal(w http.ResponseWriter, err error) {
	if errors.Is(err, errToken) {
		http.Error(w, errToken.Error()+": make another with refit bootimage token", http.StatusForbidden)
		return
	}
	s.Log.Error(err, "a machine that joins could not be served")
	http.Error(w, "it cannot be served now; ask again", http.StatusServiceUnavailable)
}

// pool reads a pool's configuration and what it asks of boot images.
func (s *Server) pool(ctx context.Context, name string) (ignition.Pool, *corev1.Secret, error) {
	held := &corev1.Secret{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: convert.JoinNamespace, Name: "first-boot-" + name}, held); err != nil {
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("there is no Secret %s/first-boot-%s", convert.JoinNamespace, name)
		}
		return ignition.Pool{}, nil, err
	}
	p := ignition.Pool{Name: name, MinimumIgnition: held.Annotations[convert.AnnotationMinimum], Fix: held.Annotations[convert.AnnotationFix]}
	_, p.CloudInit = held.Data[convert.KeyUserData]
	if p.CloudInit && len(held.Data[convert.KeyConfig]) == 0 {
		return p, held, nil
	}
	version, err := ignition.Version(held.Data[convert.KeyConfig])
	if err != nil {
		return ignition.Pool{}, nil, fmt.Errorf("configuration in Secret %s/%s, key %s: %w", convert.JoinNamespace, held.Name, convert.KeyConfig, err)
	}
	if version[0] == '2' || version[0] == '3' {
		p.Spec = int(version[0] - '0')
	}
	return p, held, nil
}
