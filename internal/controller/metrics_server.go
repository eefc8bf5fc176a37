package controller

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/refit-dev/refit/internal/controller/statuspage"
	"github.com/refit-dev/refit/internal/peerapi"
)

// Path and role of a reader of the metrics.
const (
	metricsPath = "/metrics"
	metricsRole = "refit-metrics-reader"
)

// noCertificate is a directory that cannot exist. The library's own choice is below the directory
// for temporary files, where every user writes.
const noCertificate = "/proc/no-certificate"

// metricsIsLocal reports whether only processes of this machine reach the metrics.
func metricsIsLocal(o Options) bool {
	host, _, err := net.SplitHostPort(o.MetricsAddress)
	return err != nil || statuspage.IsLoopback(host)
}

// validateMetrics refuses a certificate that would not be used.
func validateMetrics(o Options) error {
	if o.MetricsCertificate == "" {
		return nil
	}
	if metricsIsLocal(o) {
		return fmt.Errorf("-metrics-certificate-directory needs -metrics-address with an address that is not loopback, %q is: set it to :18742, or leave the directory out", o.MetricsAddress)
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(o.MetricsCertificate, name)); err != nil {
			return fmt.Errorf("the certificate of the metrics is not complete: %w; put tls.crt and tls.key into -metrics-certificate-directory, or leave it out", err)
		}
	}
	return nil
}

// metricsServer serves all metrics. Where other machines reach it, it speaks HTTPS, and the API
// server decides who may read. It then serves the logs of nodes too.
func metricsServer(direct client.Client, id *peerapi.Identity, o Options) server.Options {
	out := server.Options{BindAddress: orNone(o.MetricsAddress)}
	if metricsIsLocal(o) {
		return out
	}
	out.SecureServing = true
	out.CertDir = o.MetricsCertificate
	if out.CertDir == "" {
		out.CertDir = noCertificate
	}
	out.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS12
		c.NextProtos = []string{"http/1.1"} // one request at a time for each connection
	}}
	out.ExtraHandlers = map[string]http.Handler{nodeLogsPattern: &nodeLogs{client: direct, id: id, log: o.Log.WithName("logs"), slots: make(chan struct{}, maxLogReaders)}}
	out.FilterProvider = func(*rest.Config, *http.Client) (server.Filter, error) {
		return func(_ logr.Logger, next http.Handler) (http.Handler, error) {
			if _, ok := next.(*nodeLogs); ok {
				return statuspage.AudienceGuard(direct, o.Now, peerapi.LogTokenHeader, peerapi.LogAudience, nodeLogsPath, peerapi.LogReader, next), nil
			}
			return statuspage.TokenGuard(direct, o.Now, metricsPath, metricsRole, next), nil
		}, nil
	}
	return out
}
