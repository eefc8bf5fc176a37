// Command refit-controller is refit's controller in the cluster.
package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	_ "time/tzdata" // windows have time zones, and the image has no zone files

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "refit-controller:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := tellClientLibrary(); err != nil {
		return err
	}
	var o controller.Options
	flag.StringVar(&o.HealthAddress, "health-address", net.JoinHostPort("127.0.0.1", strconv.Itoa(model.PortHealth)), "host:port of /healthz and /readyz, 0 for none")
	flag.StringVar(&o.MetricsAddress, "metrics-address", net.JoinHostPort("127.0.0.1", strconv.Itoa(model.PortMetrics)), "host:port of /metrics, 0 for none; HTTP on a loopback address, else HTTPS for readers whom the API server permits to get /metrics")
	flag.StringVar(&o.MetricsCertificate, "metrics-certificate-directory", "", "directory with tls.crt and tls.key of /metrics, read when they change; empty for a certificate that is made at each start")
	flag.StringVar(&o.ProfileAddress, "profile-address", "0", "host:port of Go's profiler, 0 for none")
	flag.StringVar(&o.Identity, "identity", identity(), "identity in the leader election, unique per process (default the pod's name; outside a pod the host's name and a random part)")
	flag.StringVar(&o.ClusterAPI.Address, "cluster-api-address", "", "host:port of the server for Cluster API's in-place update hooks (HTTPS); empty for none")
	flag.Func("cluster-api-name", "DNS name or address under which Cluster API reaches -cluster-api-address, may be repeated (default refit-cluster-api.refit-system.svc)",
		func(v string) error { o.ClusterAPI.Names = append(o.ClusterAPI.Names, v); return nil })
	flag.StringVar(&o.ClusterAPI.ClientCA, "cluster-api-client-ca", "", "file with the CA certificates of Cluster API's client certificates; required with -cluster-api-address")
	flag.StringVar(&o.Joins.Address, "join-address", "", "host:port of the server for first-boot configurations of joining machines (HTTPS); empty for none")
	flag.Func("join-name", "DNS name or address under which machines reach -join-address, may be repeated", func(name string) error {
		o.Joins.Names = append(o.Joins.Names, name)
		return nil
	})
	flag.StringVar(&o.StatusPage.Address, "status-address", "", "host:port of the status page; empty for none; an address that is not loopback needs -status-certificate and -status-key")
	flag.StringVar(&o.StatusPage.Certificate, "status-certificate", "", "file with the TLS certificate of the status page, read at each connection")
	flag.StringVar(&o.StatusPage.Key, "status-key", "", "file with the private key of -status-certificate")
	flag.BoolVar(&o.StatusPage.WithoutToken, "status-without-token", false, "show the status page without a token to everyone who can connect; for loopback addresses only")
	flag.StringVar(&o.Notifications, "notifications", "", "file with the receivers of notifications about updates; a file that does not exist has none, and changes are read again; empty for no notifications")
	flag.Func("local-registry", "HOST or HOST:PORT of an image registry on this machine or link, may be repeated; the controller connects to no other loopback, link-local or metadata address",
		func(v string) error { o.LocalRegistries = append(o.LocalRegistries, v); return nil })
	flag.Func("local-server", "HOST or HOST:PORT on this machine or link, may be repeated: of a boot stream, an external updater, a receiver of notifications or a workload cluster. The controller connects to no other such address",
		func(v string) error { o.LocalServers = append(o.LocalServers, v); return nil })
	flag.Int64Var(&o.Bandwidth.Node, "node-bandwidth", 0, "bytes per second that a node may send to its peers, and receive from them; 0 for no limit")
	flag.Int64Var(&o.Bandwidth.Site, "site-bandwidth", 0, "bytes per second that all nodes together may send to each other, divided evenly; 0 for no limit")
	flag.Func("without", "areas that are not installed, separated by commas, whose controllers do not start: "+strings.Join(areas.Names(), ", ")+" (as refit install --without)",
		func(v string) (err error) { o.Without, err = areas.Parse(strings.Split(v, ",")); return err })
	verbose := flag.Bool("verbose", false, "log decisions too")
	show := flag.Bool("version", false, "print the version and exit")
	flag.Parse() // -kubeconfig comes from controller-runtime; without it the pod's own identity is used
	if *show {
		fmt.Println(componentversion.Refit())
		return nil
	}
	if len(o.ClusterAPI.Names) == 0 {
		o.ClusterAPI.Names = []string{"refit-cluster-api." + v1alpha1.SystemNamespace + ".svc"}
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	o.Log = logr.FromSlogHandler(slog.NewJSONHandler(text.CleanWriter(os.Stderr), &slog.HandlerOptions{Level: level}))
	ctrl.SetLogger(o.Log)
	klog.SetLogger(o.Log)
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w; outside a pod, name a file with -kubeconfig", err)
	}
	o.Config = cfg
	return controller.Run(ctrl.SetupSignalHandler(), o)
}

// clientLibrary has settings of the client library that exist only as environment
// variables. It keeps values that are already set.
//   - Check a silent connection to the API server after 3 seconds instead of 30. Behind
//     a service address a replaced API server looks like a silent one.
//   - Read existing objects as lists, not as one event per object. 30,000 NodeUpdates
//     then need 2.8 s of CPU time instead of 6.1 s.
var clientLibrary = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "2",
	"KUBE_FEATURE_WatchListClient": "false",
}

func tellClientLibrary() error {
	for name, value := range clientLibrary {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// identity returns the identity in the leader election: the pod's name, which survives a
// restart of the container. Outside a pod each process has its own, because two may run
// on one host.
func identity() string {
	if n := os.Getenv("POD_NAME"); n != "" {
		return n
	}
	h, _ := os.Hostname()
	return h + "_" + rand.Text()
}
